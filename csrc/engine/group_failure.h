// Why a group failed, and the groups that end with it. Apart from its Communicator, because the
// lane writes it and must never be the last to hold one. Any thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_annotations.h"

namespace ringdist {

class Communicator;

class GroupFailure {
 public:
  // Success if it has not failed.
  Error cause() const {
    if (!failed_) return {};
    std::lock_guard lock(mutex_);
    return cause_;
  }

  // The siblings that are to fail, too.
  std::vector<std::weak_ptr<Communicator>> set(const Error& cause) {
    std::lock_guard lock(mutex_);
    cause_ = cause;
    failed_ = true;
    return duplicates_;
  }

  // It ends with the group; the cause, if that has failed before.
  Error add(const std::shared_ptr<Communicator>& duplicate) {
    std::lock_guard lock(mutex_);
    std::erase_if(duplicates_, [](const auto& one) { return one.expired(); });
    duplicates_.push_back(duplicate);
    return cause_;
  }

  // Those that live.
  std::vector<std::shared_ptr<Communicator>> duplicates() const {
    std::vector<std::shared_ptr<Communicator>> out;
    std::lock_guard lock(mutex_);
    for (const auto& duplicate : duplicates_)
      if (auto one = duplicate.lock()) out.push_back(std::move(one));
    return out;
  }

 private:
  std::atomic<bool> failed_{false};  // after `cause_`: spares those that ask the lock
  mutable std::mutex mutex_;         // a leaf
  Error cause_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<std::weak_ptr<Communicator>> duplicates_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist
