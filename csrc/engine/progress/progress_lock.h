// Progress lock of a lane: the thread that holds it makes progress. On release it is offered to a
// waiting caller. An offer reserves nothing, so any thread may take the lock first.
//
// Threads: any. Lock order: mutex_ is a leaf.
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

// A lock that is handed from waiter to waiter. Waiters wait for their ops, and for the lock only in
// order to make progress.
class ProgressLock {
 public:
  // A caller that waits for its op. It is listed from enlist() to delist(), and sleeps in await()
  // while it does not hold the lock.
  class Waiter {
   public:
    // `op` must outlive it.
    explicit Waiter(const Op& op) : op_(op) {}

   private:
    friend class ProgressLock;
    const Op& op_;
    std::condition_variable wake_;
    bool offered_ = false;  // the lock is free and should be taken
  };

  // Tries to take the lock. Returns true on success. Never blocks.
  bool take();
  // Releases the lock; only its holder may call this. Offers the lock to a waiter other than `self`
  // with an unfinished op, and returns true if there is one.
  bool release(const Waiter* self);
  // Returns true if the calling thread holds the lock.
  bool held_by_this_thread() const {
    return owner_.load(std::memory_order_relaxed) == pthread_self();
  }

  // Adds the waiter to the list. It must be delisted before it is destroyed.
  void enlist(Waiter& waiter);
  // Removes the waiter from the list. Returns true if it has an offer that it has not used: the
  // lock should then be offered to the next waiter.
  [[nodiscard]] bool delist(Waiter& waiter);
  // Withdraws an earlier offer. Call before an attempt to take the lock, so that an offer that
  // arrives while the attempt fails is kept.
  void withdraw_offer(Waiter& waiter);
  // Sleeps until the lock is offered, the op has finished or the deadline has passed.
  void await(Waiter& waiter, TimePoint deadline);
  // Wakes the waiters of an op that has finished.
  void wake(const Op& op);
  // Returns true if any waiter is enlisted.
  bool anybody_waits() const { return waiting_.load(std::memory_order_acquire) > 0; }

 private:
  std::atomic<bool> held_{false};
  std::atomic<pthread_t> owner_{};
  std::atomic<int> waiting_{0};
  std::mutex mutex_;
  std::list<Waiter*> waiters_ RINGDIST_GUARDED_BY(mutex_);
};

// Marks the calling thread as making progress until the end of the scope, and sets the
// floating-point mode that results depend on.
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

// Returns true if the calling thread is making progress for a lane. Such a thread must not wait for
// the GIL.
bool in_progress_loop();

}  // namespace ringdist
