// The memory of ranks that share a host, each one's mapped by all: they tell each other where in
// /proc its file is, and who opens one finds a number there that only its owner can have told.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/buffers.h"
#include "base/error.h"
#include "engine/device_runner.h"
#include "os/memfd.h"

namespace ringdist {

class MappedMemory final : public GroupSharedMemory {
 public:
  // What each rank gave, in their order. Blocks.
  using Exchange = std::function<Result<std::vector<std::vector<std::byte>>>(ConstBytes mine)>;

  // Null, on all ranks alike, if any cannot map all. All ranks call it. Errors: of the exchange.
  static Result<std::shared_ptr<GroupSharedMemory>> make(int rank, size_t bytes,
                                                         const Exchange& exchange);

  Bytes of_rank(int rank) const override;

 private:
  explicit MappedMemory(std::vector<Mapping> mappings) : mappings_(std::move(mappings)) {}

  const std::vector<Mapping> mappings_;
};

}  // namespace ringdist
