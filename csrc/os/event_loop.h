// Building blocks for an event loop with its own thread: a timer for ticks, a queue of posted tasks
// and a function that starts the thread.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "os/epoll.h"

namespace ringdist {

// Schedules the ticks of an event loop: one per interval, earlier after at_most(), at once after
// hurry(). It does not read the clock; times are arguments. One thread at a time.
class TickTimer {
 public:
  explicit TickTimer(TimePoint now) : now_(now) {}

  // Starts an iteration at `now`. Returns how much later than planned it starts; the result is
  // negative if an event ended the sleep early.
  Duration begin_turn(TimePoint now) {
    const Duration late = now - now_ - sleep();
    now_ = now;
    return late;
  }
  TimePoint now() const { return now_; }
  // Returns how long the loop may sleep: 0 if a tick is due.
  Duration sleep() const { return due() ? Duration(0) : next_ - now_; }

  // Returns true if the loop should tick in this iteration.
  bool due() const { return hurried_ || now_ >= next_; }
  // Schedules the next tick after `interval` and clears hurry(). Calls of at_most() and hurry()
  // during the tick that follow may bring it forward.
  void set(Duration interval) {
    next_ = now_ + interval;
    hurried_ = false;
  }
  // Brings the next tick forward, so that it comes within `interval`.
  void at_most(Duration interval) { next_ = std::min(next_, now_ + interval); }
  // Makes a tick due at once.
  void hurry() { hurried_ = true; }

 private:
  TimePoint now_;
  TimePoint next_{};
  bool hurried_ = true;
};

// Queue of tasks that other threads post to the membership thread. It is shared, so that an answer
// of a store that arrives after the end of that thread finds a closed queue. Any thread.
class TaskQueue {
 public:
  using Task = std::function<void(TimePoint now)>;

  // Accepts tasks from here on; `wake` is signalled for each task.
  void open(EventFd wake) {
    std::lock_guard lock(mutex_);
    wake_.emplace(std::move(wake));
    open_ = true;
  }
  // Rejects further tasks and drops the queued ones. It also wakes the thread.
  void close() {
    std::deque<Task> dropped;  // destroyed after the lock is released
    std::lock_guard lock(mutex_);
    open_ = false;
    dropped.swap(tasks_);
    if (wake_) wake_->signal();
  }
  // Queues a task. Returns false and drops the task if the queue is not open.
  bool post(Task task) {
    std::lock_guard lock(mutex_);
    if (!open_) return false;
    tasks_.push_back(std::move(task));
    wake_->signal();
    return true;
  }
  // Removes all queued tasks and returns them in order.
  std::deque<Task> take() {
    std::lock_guard lock(mutex_);
    if (wake_) wake_->drain();
    return std::exchange(tasks_, {});
  }

 private:
  std::mutex mutex_;  // leaf lock: no other lock is taken while it is held
  std::optional<EventFd> wake_ RINGDIST_GUARDED_BY(mutex_);
  std::deque<Task> tasks_ RINGDIST_GUARDED_BY(mutex_);
  bool open_ RINGDIST_GUARDED_BY(mutex_) = false;
};

// Starts a thread on which no signal handler runs, because signals belong to the threads of the
// program. Signals of its own faults, such as SIGSEGV, are delivered. `name` has at most 15
// characters; `top -H` and debuggers show it. Throws std::system_error, as std::thread does, if no
// thread can be started. Any thread.
template <typename Body>
std::thread thread_without_signals(const char* name, Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS})
        sigdelset(&all, own);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } const blocked;  // a thread inherits the mask of its creator
  std::thread out(std::forward<Body>(body));
  pthread_setname_np(out.native_handle(), name);
  return out;
}

}  // namespace ringdist
