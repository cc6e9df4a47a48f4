// What other threads have the membership thread do. Apart from it, as an answer of a store may come
// when that has ended. Any thread.
#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/thread_annotations.h"
#include "os/eventfd.h"

namespace ringdist {

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

}  // namespace ringdist
