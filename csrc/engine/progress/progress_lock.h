// The driver token of a lane: whoever holds it drives. It goes from one waiting caller to the next,
// else to whoever takes it.
//
// Any thread. Lock order: mutex_ is a leaf.
#pragma once

#include <pthread.h>

#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>

#include "base/clock.h"
#include "base/scoped_float_mode.h"
#include "base/thread_annotations.h"
#include "engine/op/op.h"

namespace ringdist {

class ProgressLock {
 public:
  // A caller that waits for its op, listed from enlist() to delist(). Without the token it sleeps
  // in await().
  class Waiter {
   public:
    explicit Waiter(const Op& op) : op_(op) {}

   private:
    friend class ProgressLock;
    const Op& op_;
    std::condition_variable wake_;
    bool offered_ = false;  // the token is free: take it
  };

  // True if the caller holds it now.
  bool take();
  // By its holder. Offers it to a waiter other than `self` whose op has not finished: true then.
  bool release(const Waiter* self);
  // The calling thread holds it.
  bool held_by_this_thread() const {
    return owner_.load(std::memory_order_relaxed) == pthread_self();
  }

  void enlist(Waiter& waiter);
  // True if it was offered the token and has not taken it: the next should be.
  [[nodiscard]] bool delist(Waiter& waiter);
  // Before an attempt to take it: an offer that comes while that fails stays.
  void publish_failure(Waiter& waiter);
  // Until the token is offered, the op has finished or the deadline has passed.
  void await(Waiter& waiter, TimePoint deadline);
  // An op has finished: wakes those who wait for it.
  void wake(const Op& op);
  bool anybody_waits() const { return waiting_.load(std::memory_order_acquire) > 0; }

 private:
  std::atomic<bool> held_{false};
  std::atomic<pthread_t> owner_{};
  std::atomic<int> waiting_{0};
  std::mutex mutex_;
  std::list<Waiter*> waiters_ RINGDIST_GUARDED_BY(mutex_);
};

// A thread while it drives a lane.

// From here to the end of the scope the calling thread drives.
class InProgressScope {
 public:
  InProgressScope();
  ~InProgressScope();
  InProgressScope(const InProgressScope&) = delete;
  InProgressScope& operator=(const InProgressScope&) = delete;

 private:
  const bool before_;
  const ScopedFloatMode mode_;
};

// Whether the calling thread drives a lane, and so may not wait for the GIL.
bool in_progress_loop();

}  // namespace ringdist
