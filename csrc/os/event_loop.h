// Parts of an event loop that has a thread of its own: posted tasks, ticks, and a guard for
// exceptions.
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

// What is thrown on the control thread - there is no memory, say - ends what it was about, and the
// thread goes on. Control thread only.
class ExceptionGuard {
 public:
  // Runs it; false if it threw. What was thrown is logged, but once only until a turn goes well:
  // what cannot be done now is tried again in each turn.
  template <typename Body>
  bool operator()(const char* what, Body&& body) {
    try {
      body();
      return true;
    } catch (...) {
      caught(what);
      return false;
    }
  }
  void begin_turn();
  // In this turn something threw.
  bool failed() const { return failed_; }

 private:
  void caught(const char* what) noexcept;

  bool failed_ = false;  // in this turn
  bool warned_ = false;
};

// When the control plane looks at everything: at each heartbeat, sooner where something waits, at
// once where something has happened. The time is an argument.
class TickTimer {
 public:
  explicit TickTimer(TimePoint now) : now_(now) {}

  // How much later it is than was meant.
  Duration begin_turn(TimePoint now) {
    const Duration late = now - now_ - sleep();
    now_ = now;
    return late;
  }
  TimePoint now() const { return now_; }
  Duration sleep() const { return due() ? Duration(0) : next_ - now_; }

  bool due() const { return hurried_ || now_ >= next_; }
  // The next tick; hurry() may bring it forward, in this tick, too.
  void set(Duration interval) {
    next_ = now_ + interval;
    hurried_ = false;
  }
  void at_most(Duration interval) { next_ = std::min(next_, now_ + interval); }
  void hurry() { hurried_ = true; }

 private:
  TimePoint now_;
  TimePoint next_{};
  bool hurried_ = true;
};

// What other threads have the membership thread do. Apart from it, as an answer of a store may come
// when that has ended. Any thread.
class TaskQueue {
 public:
  using Task = std::function<void(TimePoint now)>;

  // From now on they are taken; `wake` is signalled for each.
  void open(EventFd wake) {
    std::lock_guard lock(mutex_);
    wake_.emplace(std::move(wake));
    open_ = true;
  }
  // None is taken any more, and none kept.
  void close() {
    std::deque<Task> dropped;  // not with the lock held
    std::lock_guard lock(mutex_);
    open_ = false;
    dropped.swap(tasks_);
    if (wake_) wake_->signal();
  }
  // False: it is dropped.
  bool post(Task task) {
    std::lock_guard lock(mutex_);
    if (!open_) return false;
    tasks_.push_back(std::move(task));
    wake_->signal();
    return true;
  }
  std::deque<Task> take() {
    std::lock_guard lock(mutex_);
    if (wake_) wake_->drain();
    return std::exchange(tasks_, {});
  }

 private:
  std::mutex mutex_;  // a leaf
  std::optional<EventFd> wake_ RINGDIST_GUARDED_BY(mutex_);
  std::deque<Task> tasks_ RINGDIST_GUARDED_BY(mutex_);
  bool open_ RINGDIST_GUARDED_BY(mutex_) = false;
};

// Threads that no signal runs a handler on: signals are for the program's own.

// `name`: of at most 15 characters, for `top -H` and debuggers. Throws, as std::thread does, where
// there is no thread to be had. Any thread.
template <typename Body>
std::thread thread_without_signals(const char* name, Body&& body) {
  struct Blocked {
    Blocked() {
      sigset_t all;
      sigfillset(&all);
      pthread_sigmask(SIG_SETMASK, &all, &before);
    }
    ~Blocked() { pthread_sigmask(SIG_SETMASK, &before, nullptr); }
    sigset_t before;
  } const blocked;  // a thread begins with its maker's mask
  std::thread out(std::forward<Body>(body));
  pthread_setname_np(out.native_handle(), name);
  return out;
}

}  // namespace ringdist
