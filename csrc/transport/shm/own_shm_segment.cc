#include "transport/shm/own_shm_segment.h"

#include <new>

namespace ringdist::shm {

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
      segment_(
          reinterpret_cast<ShmSegment*>(mapping_.data())),  // fresh memory is zero, as are these
      chunks_(file_, {mapping_.data(), mapping_.size()}) {
  for (uint32_t i = kMaxLinks; i > 0; --i) {
    free_rings_.push_back(i - 1);
    free_counters_.push_back(i - 1);
  }
}

Result<uint32_t> OwnShmSegment::take_ring() {
  if (free_rings_.empty())
    return Error(ErrorKind::kSystem, "more than " + std::to_string(kMaxLinks) +
                                         " processes of this host are too many for shared "
                                         "memory; set RINGDIST_TRANSPORT=ucx");
  const uint32_t index = free_rings_.back();
  const auto at = static_cast<size_t>(reinterpret_cast<std::byte*>(&ring(index)) - mapping_.data());
  if (Error error = allocate(file_, at, sizeof(Ring))) return error;
  free_rings_.pop_back();
  ring(index).published.value.store_relaxed(0);
  return index;
}

std::optional<uint32_t> OwnShmSegment::take_counter() {
  if (free_counters_.empty()) return std::nullopt;
  const uint32_t index = free_counters_.back();
  free_counters_.pop_back();
  front().consumed[index].value.store_relaxed(0);
  return index;
}

}  // namespace ringdist::shm
