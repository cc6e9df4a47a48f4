#include "engine/progress/progress_lock.h"

#include <utility>

#include "base/check.h"

namespace ringdist {

bool ProgressLock::take() {
  if (held_.exchange(true, std::memory_order_seq_cst)) return false;
  owner_.store(pthread_self(), std::memory_order_relaxed);
  return true;
}

bool ProgressLock::release(const Waiter* self) {
  check(held_by_this_thread(), "the progress lock is released by a thread that does not hold it");
  owner_.store(pthread_t{}, std::memory_order_relaxed);
  // A waiter enlists first and tries to take the lock after that. This thread frees the lock first
  // and looks for waiters after that, so at least one of the two sees the other.
  held_.store(false, std::memory_order_seq_cst);
  if (waiting_.load(std::memory_order_seq_cst) == 0) return false;
  std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiters_) {
    if (waiter == self || waiter->op_.finished()) continue;
    waiter->offered_ = true;
    waiter->wake_.notify_one();
    return true;
  }
  return false;
}

void ProgressLock::enlist(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  waiters_.push_back(&waiter);
  waiting_.fetch_add(1, std::memory_order_seq_cst);
}

bool ProgressLock::delist(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  waiters_.remove(&waiter);
  waiting_.fetch_sub(1, std::memory_order_release);
  return waiter.offered_;
}

void ProgressLock::withdraw_offer(Waiter& waiter) {
  std::lock_guard lock(mutex_);
  waiter.offered_ = false;
}

void ProgressLock::await(Waiter& waiter, TimePoint deadline) {
  std::unique_lock lock(mutex_);
  waiter.wake_.wait_until(lock, deadline, [&] { return waiter.offered_ || waiter.op_.finished(); });
}

void ProgressLock::wake(const Op& op) {
  if (!anybody_waits()) return;
  std::lock_guard lock(mutex_);
  for (Waiter* waiter : waiters_)
    if (&waiter->op_ == &op) waiter->wake_.notify_one();
}

namespace {

thread_local bool drives = false;

}  // namespace

InProgressScope::InProgressScope() : before_(std::exchange(drives, true)) {}
InProgressScope::~InProgressScope() { drives = before_; }

bool in_progress_loop() { return drives; }

}  // namespace ringdist
