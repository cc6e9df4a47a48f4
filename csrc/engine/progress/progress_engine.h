// A lane: a thread with its own transport workers that moves ops for all ranks of its Context.
//
// Whoever holds the driver token drives: polls the transports and runs the executor. A caller
// inside wait() takes the token, so that a small blocking op needs no thread switch; the lane's own
// thread drives whatever nobody waits for. Callers without the token sleep until their op ends or
// the token is handed to them.
//
// Waiting is polls, then sched_yield, then one epoll set; how long each is Backoff's to say. For a
// group that still forms it is a sleep: other threads of this process work on it.
//
// Lock order: mutex_ is a leaf: nothing is called with it held.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/dekker_word.h"
#include "base/thread_annotations.h"
#include "engine/progress/backoff.h"
#include "engine/progress/dispatcher.h"
#include "engine/progress/progress_lock.h"
#include "os/cpu_set.h"
#include "os/epoll.h"
#include "os/fork_guard.h"

namespace ringdist {

class ProgressEngine {
 public:
  // The token, if it was free; at its end what can run does, and it goes back. Nobody is woken for
  // what is left: its holder calls wait() next.
  class Guard {
   public:
    Guard() = default;
    explicit Guard(ProgressEngine& progress)
        : progress_(progress.begin_progress() ? &progress : nullptr) {
      if (progress_) driver_.emplace();
    }
    ~Guard() {
      if (progress_) progress_->end_progress();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    explicit operator bool() const { return progress_ != nullptr; }

   private:
    ProgressEngine* const progress_ = nullptr;
    std::optional<InProgressScope> driver_;
  };

  // `delegate` outlives it.
  static Result<std::unique_ptr<ProgressEngine>> start(Statistics& statistics, int64_t memory_limit,
                                                       DispatcherDelegate& delegate);
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // Runs `task` with the token held, after all tasks posted before. With `wake` false the caller
  // promises to call wait() next. False, and nothing is kept, once the lane has stopped. Any
  // thread.
  bool post(std::function<void()> task, bool wake = true);
  // Like post(), and waits until it ran; false if it did not by the deadline, or never will because
  // the lane has stopped. Not from a task.
  bool call(std::function<void()> task, TimePoint deadline);
  // Calls it, with growing pauses, until it says true; false if it did not by the deadline, or if
  // the lane does not answer. Not from a task.
  bool call_until(std::function<bool()> condition, TimePoint deadline);

  // Drives until the op has finished; false if the deadline passed first. Any thread, without the
  // GIL.
  bool wait(const Op& op, TimePoint deadline);

  // Its own thread does from now on, as far as it may (CpuSet::narrow): the first that takes has
  // its way. Callers that drive run where they like. Any thread.
  void set_affinity(const CpuSet& cpus);

  bool stopped();
  // Something that was posted has not run.
  bool has_tasks() const { return has_tasks_.load(); }

  // With the token held (inside a task).
  Dispatcher& dispatcher() { return *dispatcher_; }
  void add_transport(std::unique_ptr<Transport> transport);
  Transport* find_transport(std::string_view name);
  // A process has ended: reads what it had sent, then forgets it and runs `task`. Where nothing is
  // left to read that is at once.
  void drain_peer(ContextId peer, std::function<void()> task);

  static constexpr auto kFlushTime = std::chrono::seconds(2);  // for who is about to end
  // Waits until all that was sent has arrived, where somebody is left to receive it. Not from a
  // task.
  void flush(TimePoint deadline);
  // Stops the thread and closes the transports. Idempotent. Ops in flight must have been failed:
  // from here on nothing runs, and posted tasks are dropped.
  void stop();

 private:
  ProgressEngine(EventFd event, Epoll thread_epoll, Epoll driver_epoll);
  void run();
  void drive_in_background();
  // False: somebody else holds the token. `self`: null if it is not listed.
  bool try_to_drive(const Op& op, TimePoint deadline, const ProgressLock::Waiter* self);
  void drive(const Op& op, TimePoint deadline);
  bool poll();
  bool run_tasks();
  bool drain_peers();
  // After a round that found nothing. True: sleep.
  bool pause();
  bool begin_progress();
  void end_progress();
  void release_lock(const ProgressLock::Waiter* self);
  void wake_thread();
  bool may_take_over();
  bool thread_is_wanted();
  void block_as_driver(TimePoint deadline);
  void block_as_thread();  // gives the token back
  bool arm();
  Duration sleep_time(TimePoint deadline) const;

  const EventFd event_;
  Epoll thread_epoll_;  // the lane's thread sleeps here
  Epoll driver_epoll_;  // a caller that drives sleeps here
  ProgressLock lock_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<std::pair<ContextId, std::function<void()>>> draining_;
  Backoff backoff_;

  DekkerWord<bool> thread_sleeps_;          // in epoll, or about to be, without the token
  DekkerWord<bool> driver_sleeps_;          // the same, with it
  std::atomic<Clock::rep> last_driven_{0};  // when a caller last gave the token back
  DekkerWord<bool> has_tasks_;

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_ RINGDIST_GUARDED_BY(mutex_);
  std::condition_variable thread_wake_;
  bool thread_woken_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool stopping_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
  ForkMark mark_;
};

}  // namespace ringdist
