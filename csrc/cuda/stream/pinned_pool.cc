#include "cuda/stream/pinned_pool.h"

#include <algorithm>
#include <bit>
#include <iterator>

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
    if (const auto it = free_.find(bytes); it != free_.end()) {
      memory = it->second.back();
      it->second.pop_back();
      kept_ -= bytes;
      if (it->second.empty()) free_.erase(it);
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

// If the pool is too large, frees the largest blocks, because small ones are in constant use.
void PinnedPool::put_back(std::byte* memory, size_t bytes) {
  std::vector<std::byte*> gone;
  {
    std::lock_guard lock(mutex_);
    free_[bytes].push_back(memory);
    kept_ += bytes;
    while (kept_ > kMostKept) {
      const auto largest = std::prev(free_.end());
      gone.push_back(largest->second.back());
      largest->second.pop_back();
      kept_ -= largest->first;
      if (largest->second.empty()) free_.erase(largest);
    }
  }
  for (std::byte* const one : gone) cuda_.free_pinned(one);
}

}  // namespace ringdist::gpu
