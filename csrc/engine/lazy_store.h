// A store that is opened when it is first needed, and again where that failed. Any thread; tasks
// hold it, as they may outlive all else.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "base/thread_annotations.h"
#include "rendezvous/store.h"

namespace ringdist {

class LazyStore {
 public:
  using Open = std::function<Result<std::shared_ptr<Store>>()>;

  explicit LazyStore(Open open) : open_(std::move(open)) {}

  // May block for as long as it takes to open it.
  Result<std::shared_ptr<Store>> get() {
    std::lock_guard lock(mutex_);
    if (store_) return store_;
    auto opened = open_();
    if (opened.ok()) store_ = opened.value();
    return opened;
  }
  // Of one task at a time: one that the store lets wait must not be followed by others.
  bool begin() { return !asked_.exchange(true); }
  void end() { asked_ = false; }

 private:
  std::atomic<bool> asked_{false};
  std::mutex mutex_;  // held while it opens
  const Open open_;
  std::shared_ptr<Store> store_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
