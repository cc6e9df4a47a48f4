// TaskPool: threads for work that may block. They complete Futures, and so run callbacks of users,
// and they create groups. A task never waits for an idle thread: if there is none, another one is
// started, as far as the system permits. Idle threads end after a second, except for the last one.
//
// All threads have the signal mask and the CPUs of the thread that made the pool. Processes and
// OpenMP teams that tasks start inherit these. Any thread.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread_annotations.h"
#include "os/cpu_set.h"
#include "os/fork_guard.h"

namespace ringdist {

// A pool of threads. Tasks may outlive it if they do not end within a second after its destructor.
class TaskPool {
 public:
  TaskPool();
  ~TaskPool() { stop(Clock::now() + std::chrono::seconds(1)); }
  TaskPool(const TaskPool&) = delete;
  TaskPool& operator=(const TaskPool&) = delete;

  // Returns true in a task of any pool.
  static bool runs_here();
  // Runs a task on some thread of the pool. Returns false after stop(), which drops the task.
  // Throws, and keeps nothing, if there is no memory, or if no thread can be started and the pool
  // has none.
  bool run(std::function<void()> task) { return add({std::move(task), /*calls_back=*/false}); }
  // Like run(), but returns what run() throws as an Error. Success also if stop() has dropped the
  // task.
  Error try_to_run(std::function<void()> task);
  // Runs `call` on the pool and returns its result; for calls that may block for longer than their
  // caller can wait, for example because a store does not answer. If it has not returned at
  // `until`, fails with kTimeout and the text `late`. The call then goes on and its result is
  // dropped, so everything that it refers to must live as long. Fails with kAborted after stop(),
  // and as try_to_run() does. `call` must not throw. Do not call this with a lock that `call`
  // needs.
  template <typename T>
  Result<T> call_until(TimePoint until, std::function<Result<T>()> call, const std::string& late) {
    auto promise = std::make_shared<std::promise<Result<T>>>();
    auto answer = promise->get_future();
    // Only the task holds the promise, so if the pool drops the task, the future gets an error.
    auto task = [promise = std::move(promise), call = std::move(call)] {
      promise->set_value(call());
    };
    if (Error error = try_to_run(std::move(task))) return error;
    if (answer.wait_until(until) != std::future_status::ready)
      return Error(ErrorKind::kTimeout, late);
    try {
      return answer.get();
    } catch (const std::future_error&) {
      return Error(ErrorKind::kAborted, "this process has shut ringdist down");
    }
  }
  // Like run(), for a task that may run user code. await_callbacks() waits for it.
  bool run_callbacks(std::function<void()> task) {
    return add({std::move(task), /*calls_back=*/true});
  }

  // Waits for queued and running tasks until the deadline. Returns false if some still run; these
  // are left alone, and the pool's state outlives them. A task that calls it waits for itself,
  // until the deadline. In a forked child it returns true at once.
  bool stop(TimePoint deadline);
  // Waits for tasks of run_callbacks(), except dropped ones. Returns false if some still run at the
  // deadline. May be called after stop(), too.
  bool await_callbacks(TimePoint deadline);

 private:
  struct Task {
    std::function<void()> run;
    bool calls_back;
  };
  // State that threads share with the pool, and that may outlive it.
  struct State {
    std::mutex mutex;
    std::condition_variable wake;
    std::condition_variable ended;
    // Number of the next task, by which add() finds a task again that no thread can run.
    uint64_t next RINGDIST_GUARDED_BY(mutex) = 0;
    std::map<uint64_t, Task> tasks RINGDIST_GUARDED_BY(mutex);  // queued tasks, in order
    int idle RINGDIST_GUARDED_BY(mutex) = 0;                    // threads that wait for a task
    int threads RINGDIST_GUARDED_BY(mutex) = 0;                 // all threads
    // Tasks of run_callbacks() that are queued, running or being destroyed.
    int callbacks RINGDIST_GUARDED_BY(mutex) = 0;
    bool warned RINGDIST_GUARDED_BY(mutex) = false;  // a lack of threads has been logged
    bool stopping RINGDIST_GUARDED_BY(mutex) = false;
    sigset_t signals{};  // blocked in all threads
    CpuSet cpus;
  };
  // Queues a task, and starts a thread for it if none is idle.
  bool add(Task task);
  // Runs tasks until the pool stops or there is no more work. The body of a thread.
  static void work(std::shared_ptr<State> state);

  ForkMark mark_;
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace ringdist
