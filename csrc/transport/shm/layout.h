// What lies in the memory that a Context shares with its host. Each Context has one segment and is
// the only one who writes it; its peers map it for reading. So nobody can spoil another's memory,
// and every counter has one writer.
//
//   Front      who sleeps, and how much of each inbound link this Context has consumed
//   Ring[]     one per outbound link: a queue of messages, their payloads in them if they are short
//   chunks     payloads that do not fit there; one chunk can be in the rings of several peers
//
// A message is published by showing its ring's counter, and is consumed in order (ring_writer.h,
// ring_reader.h). A sleeper says so before it looks at the rings a last time, a writer looks
// whether somebody sleeps after it published (base/sign.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/orders.h"

namespace ringdist::shm {

inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kMaxLinks = 256;  // peers that share a host
inline constexpr size_t kSlots = 128;     // messages in flight per link
inline constexpr size_t kSlotRoom = 240;  // header and short payload
inline constexpr size_t kSmallChunk = 4096;
inline constexpr size_t kSmallChunks = 1024;
inline constexpr size_t kLargeChunk = size_t{256} << 10;
inline constexpr size_t kLargeChunks = 64;            // in use at once, but for the next:
inline constexpr size_t kReservedChunks = kMaxLinks;  // a link that holds none gets one
inline constexpr size_t kPayloadAlignment = 16;       // of short payloads

template <typename Orders>
struct alignas(kCacheLine) Counter {
  Sign<uint64_t, Orders> value;
};

struct Slot {
  uint32_t header_size;
  uint32_t payload_size;
  uint64_t payload_at;  // from the segment's beginning; 0: in `bytes`, behind the header
  std::array<std::byte, kSlotRoom> bytes;
};
static_assert(sizeof(Slot) == 256);

struct Ring {
  Counter<PublishedOrders> published;
  std::array<Slot, kSlots> slots;
};

enum class Sleep : uint32_t {
  kAwake = 0,
  kForMessages,
  kForRoom,  // and for messages
};

struct Front {
  alignas(kCacheLine) Sign<Sleep, SleepOrders> sleep;
  std::array<Counter<ConsumedOrders>, kMaxLinks> consumed;
};

struct Segment {
  Front front;
  std::array<Ring, kMaxLinks> rings;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<Sleep>::is_always_lock_free,
              "processes cannot share a lock");

constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

inline constexpr size_t kChunksAt = round_up(sizeof(Segment), kLargeChunk);
inline constexpr size_t kSmallAt = kChunksAt + (kLargeChunks + kReservedChunks) * kLargeChunk;
inline constexpr size_t kSegmentBytes = kSmallAt + kSmallChunks * kSmallChunk;

// Where a short payload begins behind its header.
constexpr size_t short_payload_at(size_t header) { return round_up(header, kPayloadAlignment); }
constexpr bool is_short(size_t header, size_t payload) {
  return short_payload_at(header) + payload <= kSlotRoom;
}

}  // namespace ringdist::shm
