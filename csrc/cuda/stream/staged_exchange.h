// One visit of a stream to the host: what it copied there is handed to the group's host ops, and
// the stream may wait until those have ended, well or not. Shared by the op, the stream's call and
// the host ops.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"
#include "cuda/stream/first_error.h"
#include "cuda/stream/revocable_group.h"
#include "engine/device_runner.h"

namespace ringdist::gpu {

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

}  // namespace ringdist::gpu
