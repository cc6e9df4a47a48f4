#pragma once

#include <mutex>

#include "base/error.h"
#include "base/thread_annotations.h"

namespace ringdist::gpu {

// The first Error of a way's host ops. Any thread.
class FirstError {
 public:
  void set(const Error& error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = error;
  }
  Error get() const {
    std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  mutable std::mutex mutex_;  // a leaf
  Error error_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
