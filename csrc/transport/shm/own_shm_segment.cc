#include "transport/shm/own_shm_segment.h"

#include <new>

#include "base/check.h"
#include "os/memfd.h"

namespace ringdist::shm {

// Memory is allocated for the first chunks of a class first, so peers need not map the part that
// was never used.
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

// The file is mapped before it is sealed, because the seal forbids later writable mappings.
Result<std::unique_ptr<OwnShmSegment>> OwnShmSegment::create() {
  auto doorbell = Doorbell::create();
  if (!doorbell.ok()) return doorbell.error();
  auto file = create_memory("ringdist", kSegmentBytes);
  if (!file.ok()) return file.error();
  auto mapping = map_memory(file.value(), kSegmentBytes, /*writable=*/true);
  if (!mapping.ok()) return mapping.error();
  seal_against_writing(file.value());
  if (Error error = allocate(file.value(), 0, sizeof(ControlBlock))) return error;
  return std::unique_ptr<OwnShmSegment>(new OwnShmSegment(
      std::move(file.value()), std::move(doorbell.value()), std::move(mapping.value())));
}

OwnShmSegment::OwnShmSegment(Fd file, Doorbell doorbell, Mapping mapping)
    : file_(std::move(file)),
      doorbell_(std::move(doorbell)),
      mapping_(std::move(mapping)),
      segment_(reinterpret_cast<ShmSegment*>(mapping_.data())),  // new memory is zero, as required
      chunks_(file_, {mapping_.data(), mapping_.size()}) {
  for (uint32_t i = kMaxChannels; i > 0; --i) {
    free_rings_.push_back(i - 1);
    free_counters_.push_back(i - 1);
  }
}

Result<uint32_t> OwnShmSegment::take_ring() {
  if (free_rings_.empty())
    return Error(ErrorKind::kSystem, "more than " + std::to_string(kMaxChannels) +
                                         " processes of this host are too many for shared "
                                         "memory; set RINGDIST_TRANSPORT=ucx");
  const uint32_t index = free_rings_.back();
  const auto at = static_cast<size_t>(reinterpret_cast<std::byte*>(&ring(index)) - mapping_.data());
  if (Error error = allocate(file_, at, sizeof(Ring))) return error;
  free_rings_.pop_back();
  // No peer reads the ring before a hello names it, so the store needs no order.
  ring(index).published.value.store_relaxed(0);
  return index;
}

std::optional<uint32_t> OwnShmSegment::take_counter() {
  if (free_counters_.empty()) return std::nullopt;
  const uint32_t index = free_counters_.back();
  free_counters_.pop_back();
  // No peer reads the counter before the answer to its hello names it.
  front().consumed[index].value.store_relaxed(0);
  return index;
}

}  // namespace ringdist::shm
