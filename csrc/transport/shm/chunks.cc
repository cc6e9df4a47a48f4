#include "transport/shm/chunks.h"

#include "base/check.h"
#include "os/memfd.h"

namespace ringdist::shm {

std::optional<Chunks::Id> Chunks::take(size_t bytes, bool reserved) {
  check(bytes <= kLargeChunk, "payload above the size of a chunk");
  Class& small = small_;
  const bool fits_small =
      bytes <= kSmallChunk && (!small.free.empty() || small.holders.size() < small.most);
  Class& from = fits_small ? small : large_;
  if (from.free.empty()) {
    if (from.holders.size() >= (reserved ? from.most : from.usual)) return std::nullopt;
    if (error_ = allocate(file_, from.at + from.holders.size() * from.bytes, from.bytes); error_)
      return std::nullopt;
    from.free.push_back(static_cast<uint32_t>(from.holders.size()));
    from.holders.push_back(0);
  }
  const uint32_t taken = from.free.back();
  from.free.pop_back();
  from.holders[taken] = 1;
  return fits_small ? kFirstSmall + taken : taken;
}

void Chunks::release(Id chunk) {
  Class& its_class = class_of(chunk);
  check(its_class.holders[index(chunk)] > 0, "a chunk was released twice");
  if (--its_class.holders[index(chunk)] == 0)
    its_class.free.push_back(static_cast<uint32_t>(index(chunk)));
}

uint64_t Chunks::offset(Id chunk) const {
  const Class& its_class = class_of(chunk);
  return its_class.at + index(chunk) * its_class.bytes;
}

Chunks::Id Chunks::find(const std::byte* data) const {
  const auto at = static_cast<size_t>(data - memory_.data());
  check(data >= memory_.data() && at >= kChunksAt && at < kSegmentBytes, "memory of no chunk");
  if (at >= kSmallAt) return kFirstSmall + static_cast<Id>((at - kSmallAt) / kSmallChunk);
  return static_cast<Id>((at - kChunksAt) / kLargeChunk);
}

}  // namespace ringdist::shm
