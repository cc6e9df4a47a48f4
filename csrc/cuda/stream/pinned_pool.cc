#include "cuda/stream/pinned_pool.h"

#include <algorithm>
#include <bit>

namespace ringdist::gpu {

PinnedPool::~PinnedPool() {
  for (const auto& [bytes, blocks] : free_)
    for (std::byte* const block : blocks) cuda_.free_pinned(block);
}

Result<std::shared_ptr<std::byte>> PinnedPool::take(size_t bytes) {
  constexpr size_t kLeast = 4096;
  bytes = std::bit_ceil(std::max(bytes, kLeast));
  std::byte* memory = nullptr;
  {
    std::lock_guard lock(mutex_);
    if (auto& blocks = free_[bytes]; !blocks.empty()) {
      memory = blocks.back();
      blocks.pop_back();
      kept_ -= bytes;
    }
  }
  if (memory == nullptr) {
    const Result<void*> made = cuda_.allocate_pinned(bytes);
    if (!made.ok()) return made.error();
    memory = static_cast<std::byte*>(made.value());
  }
  return std::shared_ptr<std::byte>(memory, [self = shared_from_this(), bytes](std::byte* block) {
    self->put_back(block, bytes);
  });
}

void PinnedPool::put_back(std::byte* memory, size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (kept_ + bytes <= kMostKept) {
      free_[bytes].push_back(memory);
      kept_ += bytes;
      return;
    }
  }
  cuda_.free_pinned(memory);
}

}  // namespace ringdist::gpu
