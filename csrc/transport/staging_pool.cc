#include "transport/staging_pool.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

// A new buffer is allocated only while all others are in use. Buffers do not move when the vector
// grows, because it holds pointers to them.
std::optional<Bytes> StagingPool::take(size_t bytes) {
  check(bytes <= buffer_bytes_, "reservation above the transport's largest message");
  auto free = std::ranges::find(all_, 0, &Buffer::holders);
  if (free == all_.end()) {
    if (all_.size() == max_buffers_) return std::nullopt;
    all_.push_back({std::make_unique_for_overwrite<std::byte[]>(buffer_bytes_)});
    free = all_.end() - 1;
  }
  free->holders = 1;
  return Bytes(free->memory.get(), bytes);
}

StagingPool::Buffer& StagingPool::find(const std::byte* memory) {
  const auto it = std::ranges::find_if(
      all_, [memory](const Buffer& buffer) { return buffer.memory.get() == memory; });
  check(it != all_.end() && it->holders > 0, "a buffer that was not reserved");
  return *it;
}

void StagingPool::hold(const std::byte* buffer) { ++find(buffer).holders; }

void StagingPool::release(const std::byte* buffer) { --find(buffer).holders; }

}  // namespace ringdist
