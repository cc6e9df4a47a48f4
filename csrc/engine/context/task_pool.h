// Threads for what may block: completing Futures (their callbacks run user code, take the GIL,
// issue ops and wait for them) and creating groups. A task never waits for an idle thread: if there
// is none, another is started. Idle ones end after a second. All have the signal mask and the CPUs
// of the thread that made the pool: what they start - processes, OpenMP's teams - inherits them.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "os/cpu_set.h"
#include "os/fork_guard.h"

namespace ringdist {

class TaskPool {
 public:
  TaskPool();
  ~TaskPool() { stop(Clock::now() + std::chrono::seconds(1)); }
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // True in a task of any pool.
  static bool runs_here();
  // Any thread. False after stop(): the task is dropped. Throws, and keeps nothing, where there is
  // no memory, or no thread at all: not one of the pool's own.
  bool run(std::function<void()> task) { return add({std::move(task), /*calls_back=*/false}); }
  // The same; what run() throws is an Error. Nobody is told of a task that stop() has dropped.
  Error try_to_run(std::function<void()> task);
  // As run(), of what may run users' code.
  bool run_callbacks(std::function<void()> task) {
    return add({std::move(task), /*calls_back=*/true});
  }

  // Waits for queued and running tasks until the deadline; false if some still run. They are then
  // left alone: the pool's state outlives them.
  bool stop(TimePoint deadline);
  // Also after stop(). False if run_callbacks()'s, all but those that were dropped, still run then.
  bool await_callbacks(TimePoint deadline);

 private:
  struct Task {
    std::function<void()> run;
    bool calls_back;
  };
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable ended;
    uint64_t next RINGDIST_GUARDED_BY(mutex) = 0;
    std::map<uint64_t, Task> tasks RINGDIST_GUARDED_BY(mutex);  // in order
    int idle RINGDIST_GUARDED_BY(mutex) = 0;
    int threads RINGDIST_GUARDED_BY(mutex) = 0;
    int callbacks RINGDIST_GUARDED_BY(mutex) = 0;    // queued, running, or being let go
    bool warned RINGDIST_GUARDED_BY(mutex) = false;  // of too few threads
    bool stopping RINGDIST_GUARDED_BY(mutex) = false;
    sigset_t signals{};  // that are blocked
    CpuSet cpus;
  };
  bool add(Task task);
  static void work(std::shared_ptr<State> state);

  ForkMark mark_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ringdist
