// One visit of a stream to the host: what it copied there is handed to the group's host ops, and
// the stream waits until those have ended, well or not. Shared by the op, the stream's call and the
// host ops.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cuda/api/cuda_api.h"
#include "cuda/stream/first_error.h"
#include "cuda/stream/group_access.h"
#include "engine/runner.h"

namespace ringdist::gpu {

class StagedExchange : public std::enable_shared_from_this<StagedExchange> {
 public:
  // `flag`: pinned, of this exchange alone.
  StagedExchange(std::shared_ptr<GroupAccess> group, std::shared_ptr<FirstError> failed,
                 std::shared_ptr<std::byte> flag);

  void add(HostOp op) { ops_.push_back(std::move(op)); }
  // The stream comes to the host, and goes on when all ops have ended.
  Error enqueue(CudaApi& cuda, Stream stream);

 private:
  void begin();
  void ended(const Error& error);

  const std::shared_ptr<GroupAccess> group_;
  const std::shared_ptr<FirstError> failed_;
  const std::shared_ptr<std::byte> flag_;
  std::vector<HostOp> ops_;
  std::atomic<size_t> open_{0};
};

}  // namespace ringdist::gpu
