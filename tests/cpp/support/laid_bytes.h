// Bytes that a test sends, either in ordinary memory or in a block that processes can share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/buffers.h"
#include "os/shared_block_registry.h"

namespace ringdist {

class LaidBytes {
 public:
  LaidBytes(const std::vector<std::byte>& bytes, bool shared) {
    if (shared) block_ = SharedBlockRegistry::of_process().allocate(bytes.size() + 1).value();
    if (!block_) kept_ = bytes;
    if (block_) std::ranges::copy(bytes, block_);
    bytes_ = {block_ ? block_ : kept_.data(), bytes.size()};
  }
  ~LaidBytes() {
    if (block_) SharedBlockRegistry::of_process().free(block_);
  }
  LaidBytes(const LaidBytes&) = delete;
  ConstBytes bytes() const { return bytes_; }

 private:
  std::vector<std::byte> kept_;
  std::byte* block_ = nullptr;
  ConstBytes bytes_;
};

}  // namespace ringdist
