// Progress engine of a lane: moves messages and executes steps for all ranks of its Context. It has
// its own thread and its own transports.
//
// The thread that holds the progress lock makes progress: it polls the transports and runs the
// dispatcher. A caller inside wait() takes the lock itself, so that a small blocking op needs no
// thread switch. The lane's thread makes progress when no caller does. Callers without the lock
// sleep until their op ends or the lock is offered to them.
//
// Waiting starts with polls, continues with sched_yield, and ends with a sleep in one epoll set;
// Backoff determines the times. For a group that is still forming the wait is a sleep, because
// other threads of this process work on it.
//
// Lock order: mutex_ is a leaf. Nothing is called with it held.
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

// Created by start(), one per lane. The sections below state which functions need the progress
// lock.
class ProgressEngine {
 public:
  // Holds the progress lock for a scope, if it was free. At its end, queued tasks and steps are
  // executed and the lock is released. No thread is woken for steps that remain, because the
  // holder calls wait() next.
  class Guard {
   public:
    Guard() = default;
    explicit Guard(ProgressEngine& progress)
        : progress_(progress.begin_progress() ? &progress : nullptr) {
      if (progress_) scope_.emplace();
    }
    ~Guard() {
      if (progress_) progress_->end_progress();
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;
    // Returns true if the lock is held.
    explicit operator bool() const { return progress_ != nullptr; }

   private:
    ProgressEngine* const progress_ = nullptr;
    std::optional<InProgressScope> scope_;
  };

  // Creates an engine and starts its thread. `memory_limit` bounds the bytes that may be granted.
  // `statistics` and `delegate` must outlive the engine. Errors: the system refused a descriptor or
  // a thread.
  static Result<std::unique_ptr<ProgressEngine>> start(Statistics& statistics, int64_t memory_limit,
                                                       DispatcherDelegate& delegate);
  ~ProgressEngine();
  ProgressEngine(const ProgressEngine&) = delete;
  ProgressEngine& operator=(const ProgressEngine&) = delete;

  // Runs `task` with the progress lock held, after all tasks posted before. With `wake` false, the
  // caller promises to call wait() next. Returns false, and drops the task, once the lane has
  // stopped. Any thread.
  bool post(std::function<void()> task, bool wake = true);
  // Like post(), for a task that calls `body` with the slot; see Dispatcher::with().
  template <typename Body>
  bool post_to(std::shared_ptr<GroupSlot> slot, Body body) {
    return post(task_on(std::move(slot), std::move(body)));
  }
  // Like post(), but waits until the task has run. Returns false if it did not run by the deadline,
  // if the lane has stopped, or if it threw, which fails all groups. It may run after the deadline,
  // so it must own what it uses. Must not be called from a task or under a Guard.
  bool call(std::function<void()> task, TimePoint deadline);
  // Like call(), for a task that calls `body` with the slot.
  template <typename Body>
  bool call_on(std::shared_ptr<GroupSlot> slot, Body body, TimePoint deadline) {
    return call(task_on(std::move(slot), std::move(body)), deadline);
  }
  // Calls `condition` on the lane, with pauses from 0.1 to 10 ms, until it returns true. Returns
  // false if it did not by the deadline, or if the lane does not respond within 10 s. Must not be
  // called from a task.
  bool call_until(std::function<bool()> condition, TimePoint deadline);

  // Makes progress, or waits, until the op has finished. Returns false if the deadline passed
  // first. Any thread, without the GIL.
  bool wait(const Op& op, TimePoint deadline);

  // Restricts the lane's thread to `cpus`, as far as possible (CpuSet::narrow): the first
  // restriction that succeeds stays. Callers that make progress are not affected. Any thread.
  void set_affinity(const CpuSet& cpus);

  // Returns true once stop() has been called. Any thread.
  bool stopped();
  // Returns true if a posted task has not run. Any thread.
  bool has_tasks() const { return has_tasks_.load(); }

  // The next functions need the progress lock, so they are called in tasks or under a Guard.
  Dispatcher& dispatcher() { return *dispatcher_; }
  // Adds a transport, which the engine owns until its destruction.
  void add_transport(std::unique_ptr<Transport> transport);
  // Returns the transport with that name, or null.
  Transport* find_transport(std::string_view name);
  // Call when a process has ended. Reads everything that it had sent, then runs `task` and drops
  // the peer from all transports. If nothing is left to read, this happens at once.
  void drain_peer(ContextId peer, std::function<void()> task);

  // Limit for flush() in a process that is about to end.
  static constexpr auto kFlushTime = std::chrono::seconds(2);
  // Waits until everything that was sent has arrived at the peers that still receive, or until the
  // deadline. Must not be called from a task.
  void flush(TimePoint deadline);
  // Stops the thread and closes the transports. Idempotent. Ops in flight must have been failed
  // before. Afterwards nothing is executed, and posted tasks are dropped. Waits up to a second for
  // a caller that makes progress. If it does not return, the transports stay open.
  void stop();

 private:
  // Returns a task that calls `body` with the slot, by Dispatcher::with().
  template <typename Body>
  auto task_on(std::shared_ptr<GroupSlot> slot, Body body) {
    return [this, slot = std::move(slot), body = std::move(body)] {
      dispatcher_->with(slot, [&] { body(*slot); });
    };
  }
  ProgressEngine(EventFd event, Epoll thread_epoll, Epoll caller_epoll);
  // Main function of the lane's thread.
  void run();
  // Makes progress on the lane's thread until there is nothing to do, or a caller takes over.
  void drive_in_background();
  // Makes progress for `op` if the lock is free. Returns false if another thread holds it. `self`
  // is null if the caller is not enlisted as a waiter.
  bool try_to_drive(const Op& op, TimePoint deadline, const ProgressLock::Waiter* self);
  // Makes progress until the op has finished or the deadline has passed. Needs the lock.
  void drive(const Op& op, TimePoint deadline);
  // Runs one iteration: tasks, transports, steps and ticks.
  bool poll();
  // Runs the posted tasks. Returns true if there were any.
  bool run_tasks();
  // Finishes peers that have been drained. Returns true if there were any.
  bool drain_peers();
  // Call after an iteration without events. May yield the core. Returns true if the lane should
  // sleep.
  bool pause();
  // Take and release the lock for a Guard.
  bool begin_progress();
  void end_progress();
  // Releases the lock and wakes the lane's thread if there is work that no waiter takes over.
  void release_lock(const ProgressLock::Waiter* self);
  // Wakes the lane's thread, and a caller that sleeps with the lock held.
  void wake_thread();
  // Returns true if the lane's thread should take the lock.
  bool may_take_over();
  // Returns true if the lane's thread must not go to sleep.
  bool thread_is_wanted();
  // Sleep until an event, with the lock held by a caller.
  void block_as_caller(TimePoint deadline);
  void block_as_thread();  // releases the lock
  // Prepares all transports to signal their descriptors. Returns false if there is work already.
  bool arm();
  // Returns how long the lane may sleep without an event.
  Duration sleep_time(TimePoint deadline) const;

  const EventFd event_;
  Epoll thread_epoll_;  // the lane's thread sleeps in this one
  Epoll caller_epoll_;  // a caller that holds the lock sleeps in this one
  ProgressLock lock_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::vector<std::unique_ptr<Transport>> transports_;
  // Peers that have ended, and what to run once they are drained.
  std::vector<std::pair<ContextId, std::function<void()>>> draining_;
  Backoff backoff_;

  DekkerWord<bool> thread_sleeps_;  // the thread is in epoll, or about to be, without the lock
  DekkerWord<bool> caller_sleeps_;  // the same for a caller, with the lock
  std::atomic<Clock::rep> last_driven_{0};  // when a caller last released the lock
  DekkerWord<bool> has_tasks_;

  std::mutex mutex_;
  std::deque<std::function<void()>> tasks_ RINGDIST_GUARDED_BY(mutex_);
  std::condition_variable thread_wake_;
  bool thread_woken_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool stopping_ RINGDIST_GUARDED_BY(mutex_) = false;
  std::thread thread_;
  ForkMark mark_;  // detects that this is a forked child, which has no lane thread
};

}  // namespace ringdist
