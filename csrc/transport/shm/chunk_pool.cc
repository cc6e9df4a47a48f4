#include "transport/shm/chunk_pool.h"

#include "base/check.h"
#include "os/memfd.h"

namespace ringdist::shm {

std::optional<ChunkPool::Id> ChunkPool::take(size_t bytes, bool reserved) {
  check(bytes <= kLargeChunk, "payload above the size of a chunk");
  error_ = {};
  const bool is_small = bytes <= kSmallChunk && small_.in_use < small_.usual;
  Class& from = is_small ? small_ : large_;
  if (from.in_use >= (reserved ? from.most : from.usual)) return std::nullopt;
  if (from.free.empty()) {
    if (error_ = allocate(file_, from.at + from.holders.size() * from.bytes, from.bytes); error_)
      return std::nullopt;
    from.free.push_back(static_cast<uint32_t>(from.holders.size()));
    from.holders.push_back(0);
  }
  const uint32_t taken = from.free.back();
  from.free.pop_back();
  from.holders[taken] = 1;
  ++from.in_use;
  return is_small ? kFirstSmall + taken : taken;
}

void ChunkPool::release(Id chunk) {
  Class& its_class = class_of(chunk);
  check(its_class.holders[index(chunk)] > 0, "a chunk was released twice");
  if (--its_class.holders[index(chunk)] > 0) return;
  its_class.free.push_back(static_cast<uint32_t>(index(chunk)));
  --its_class.in_use;
}

uint64_t ChunkPool::offset(Id chunk) const {
  const Class& its_class = class_of(chunk);
  return its_class.at + index(chunk) * its_class.bytes;
}

ChunkPool::Id ChunkPool::find(const std::byte* data) const {
  const auto at = static_cast<size_t>(data - memory_.data());
  check(data >= memory_.data() && at >= kChunksAt && at < kSegmentBytes, "memory of no chunk");
  if (at < kLargeAt) return kFirstSmall + static_cast<Id>((at - kChunksAt) / kSmallChunk);
  return static_cast<Id>((at - kLargeAt) / kLargeChunk);
}

}  // namespace ringdist::shm
