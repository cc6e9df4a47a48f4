// One visit of a stream to the host: what it copied there is handed to the group's host ops, and
// the stream may wait until those have ended, well or not. Shared by the op, the stream's call and
// the host ops.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/thread_annotations.h"
#include "cuda/api/cuda_api.h"
#include "engine/device/device_runner.h"

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

class StagedExchange : public std::enable_shared_from_this<StagedExchange> {
 public:
  // `flag`: pinned, of this exchange alone.
  StagedExchange(std::shared_ptr<RevocableGroup> group, std::shared_ptr<FirstError> failed,
                 std::shared_ptr<std::byte> flag);

  // `verdict`: what is wrong with an op that has ended well.
  using Check = std::function<Error()>;
  void add(HostOp op, Check verdict = {}) {
    add_made([op = std::move(op)] { return op; }, std::move(verdict));
  }
  // An op that `make` gives when the stream has got there.
  using Make = std::function<HostOp()>;
  void add_made(Make make, Check verdict = {}) {
    ops_.push_back({std::move(make), std::move(verdict)});
  }
  // The ops start when the stream gets there.
  Error start(CudaApi& cuda, Stream stream);
  // What the stream gets from now on comes after all ops have ended.
  Error await(CudaApi& cuda, Stream stream);

 private:
  struct Added {
    Make make;
    Check verdict;
  };
  void begin();
  Error start_one(Added one);
  void ended(const Error& error);

  const std::shared_ptr<RevocableGroup> group_;
  const std::shared_ptr<FirstError> failed_;
  const std::shared_ptr<std::byte> flag_;
  std::vector<Added> ops_;
  std::atomic<size_t> open_{0};
};

// Has the ranks of an op tell each other what they have called, and compares: of ops whose bytes do
// not pass through the host's, where nobody else would notice that they differ.
void add_comparison(const DeviceOp& op, int rank, int size, StagedExchange& to);

}  // namespace ringdist::gpu
