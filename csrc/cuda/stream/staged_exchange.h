// One visit of a stream to the host. When the stream reaches it, ops of the host start on memory
// that the stream has filled. The stream can wait until they have ended, even if they failed.
//
// The exchange is shared by the op, the stream's callback and the host ops, and lives until the
// last of them is done.
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

// First error of a path's host ops. Any thread.
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

// Reference to a group that may end before callbacks of streams have run. Any thread.
class RevocableGroup {
 public:
  explicit RevocableGroup(RunnerDelegate& group) : group_(&group) {}
  // Makes later calls fail, because the group no longer exists.
  void end() {
    std::lock_guard lock(mutex_);
    group_ = nullptr;
  }
  // See RunnerDelegate::run_on_host(). Error kAborted after end().
  Error run_on_host(HostOp op, std::function<void(Error)> ended) {
    std::lock_guard lock(mutex_);
    if (group_ == nullptr) return Error(ErrorKind::kAborted, "ringdist: the group has ended");
    return group_->run_on_host(std::move(op), std::move(ended));
  }

 private:
  std::mutex mutex_;  // locked before the group's locks
  RunnerDelegate* group_ RINGDIST_GUARDED_BY(mutex_);
};

// Ops to start when a stream reaches start(), and a flag that await() waits for. add() must come
// before start().
class StagedExchange : public std::enable_shared_from_this<StagedExchange> {
 public:
  // `flag` is pinned memory for this exchange only.
  StagedExchange(std::shared_ptr<RevocableGroup> group, std::shared_ptr<FirstError> failed,
                 std::shared_ptr<std::byte> flag);

  // Adds an op. `check` is called after the op has succeeded, and returns what is wrong with its
  // result.
  using Check = std::function<Error()>;
  void add(HostOp op, Check check = {}) {
    add_made([op = std::move(op)] { return op; }, std::move(check));
  }
  // Adds an op that `make` creates when the stream reaches start(). `make` may read pinned memory
  // that the stream has filled by then.
  using Make = std::function<HostOp()>;
  void add_made(Make make, Check check = {}) {
    ops_.push_back({std::move(make), std::move(check)});
  }
  // Enqueues a callback on the stream that starts the ops.
  Error start(CudaApi& cuda, Stream stream);
  // Makes later work of the stream wait until all ops have ended. Their errors go to `failed` only.
  Error await(CudaApi& cuda, Stream stream);

 private:
  struct Added {
    Make make;
    Check check;
  };
  // Starts all ops; called by the stream.
  void begin();
  // Starts one op. Returns the error if it could not be started.
  Error start_one(Added one);
  // Records the end of one op. The last one sets the flag.
  void ended(const Error& error);

  const std::shared_ptr<RevocableGroup> group_;
  const std::shared_ptr<FirstError> failed_;
  const std::shared_ptr<std::byte> flag_;
  std::vector<Added> ops_;
  std::atomic<size_t> open_{0};  // ops that have not ended, plus one during begin()
};

// Adds an allgather of the calls' fingerprints, which reports kMismatch if the ranks' calls differ.
// It is for ops with bytes that bypass the host, where a mismatch would not be noticed otherwise.
void add_comparison(const DeviceOp& op, int rank, int size, StagedExchange& to);

}  // namespace ringdist::gpu
