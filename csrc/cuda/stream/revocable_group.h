#pragma once

#include <functional>
#include <mutex>
#include <utility>

#include "base/error.h"
#include "base/thread_annotations.h"
#include "engine/device_runner.h"

namespace ringdist::gpu {

// A group as long as it is there: streams come to the host whenever they do. Any thread.
class RevocableGroup {
 public:
  explicit RevocableGroup(RunnerDelegate& group) : group_(&group) {}
  // From then on there is no group.
  void end() {
    std::lock_guard lock(mutex_);
    group_ = nullptr;
  }
  // As RunnerDelegate's.
  Error run_on_host(HostOp op, std::function<void(Error)> ended) {
    std::lock_guard lock(mutex_);
    if (group_ == nullptr) return Error(ErrorKind::kAborted, "ringdist: the group has ended");
    return group_->run_on_host(std::move(op), std::move(ended));
  }

 private:
  std::mutex mutex_;  // before the group's
  RunnerDelegate* group_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
