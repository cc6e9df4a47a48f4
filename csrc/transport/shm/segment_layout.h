// What lies in the memory that a Context shares with its host. Each Context has one segment and is
// the only one who writes it; its peers map it for reading. So nobody can spoil another's memory,
// and every counter has one writer.
//
//   Front      who sleeps, and how much of each inbound link this Context has consumed
//   Ring[]     one per outbound link: a queue of messages, their payloads in them if they are short
//   chunks     payloads that do not fit there; one chunk can be in the rings of several peers
//
// A payload that lies in a shared tensor is in none of these: its message names the loan
// (export_message.h) and the place in it, and the sender marks the message before that memory
// changes.
//
// A message is published by showing its ring's counter, and is consumed in order (ring_writer.h,
// ring_reader.h). A sleeper says so before it looks at the rings a last time, a writer looks
// whether somebody sleeps after it published (base/dekker_word.h).
//
// A link ends by its counters as well: kLast in a ring's says that nothing follows, in the one of
// what was consumed that nothing more is read, after which that ring's messages are free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/memory_orders.h"

namespace ringdist::shm {

inline constexpr uint32_t kLayoutVersion = 4;
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
inline constexpr size_t kMaxExports = 256;            // of one link: blocks that its reader maps
inline constexpr uint32_t kExportNumbers = 1 << 16;
inline constexpr size_t kMostCopied = size_t{64} << 10;  // sooner than its readers are waited for

inline constexpr uint64_t kLast = uint64_t{1} << 63;  // in a counter

template <typename Orders>
struct alignas(kCacheLine) Counter {
  DekkerWord<uint64_t, Orders> value;
};

// Of a message, beside the size of its header.
inline constexpr uint32_t kHeaderSize = 0xffff;
inline constexpr uint32_t kExported = 1 << 16;   // its payload lies in a loan
inline constexpr uint32_t kWithdrawn = 1 << 17;  // and may have changed
inline constexpr uint32_t kLoad = 1 << 18;       // something was said over the connection

struct Slot {
  std::atomic<uint32_t> header;  // its size, and marks
  uint32_t payload_size;
  uint64_t
      payload_at;  // from the segment's beginning, or in a loan; 0: in `bytes`, behind the header
  std::array<std::byte, kSlotRoom> bytes;
};
static_assert(sizeof(Slot) == 256);

struct Ring {
  Counter<PublishedOrders> published;
  std::array<Slot, kSlots> slots;
};

enum class SleepState : uint32_t {
  kAwake = 0,
  kForMessages,
  kForRoom,  // and for messages
};

struct ControlBlock {
  alignas(kCacheLine) DekkerWord<SleepState, SleepOrders> sleep;
  std::array<Counter<ConsumedOrders>, kMaxLinks> consumed;
};

struct ShmSegment {
  ControlBlock front;
  std::array<Ring, kMaxLinks> rings;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<SleepState>::is_always_lock_free,
              "processes cannot share a lock");

constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// The small chunks first: a reader maps the chunks up to the last that was used.
inline constexpr size_t kChunksAt = round_up(sizeof(ShmSegment), kLargeChunk);
inline constexpr size_t kLargeAt = kChunksAt + kSmallChunks * kSmallChunk;
inline constexpr size_t kSegmentBytes = kLargeAt + (kLargeChunks + kReservedChunks) * kLargeChunk;

constexpr size_t end_of_ring(uint32_t index) {
  return sizeof(ControlBlock) + (index + 1) * sizeof(Ring);
}
static_assert(end_of_ring(kMaxLinks - 1) == sizeof(ShmSegment));

// Of a payload in a loan.
constexpr uint64_t export_address(uint32_t loan, uint64_t offset) {
  return uint64_t{loan} << 48 | offset;
}
constexpr uint32_t export_of(uint64_t place) { return static_cast<uint32_t>(place >> 48); }
constexpr uint64_t offset_in_export(uint64_t place) { return place & ((uint64_t{1} << 48) - 1); }

// Where a short payload begins behind its header.
constexpr size_t short_payload_at(size_t header) { return round_up(header, kPayloadAlignment); }
constexpr bool is_short(size_t header, size_t payload) {
  return short_payload_at(header) + payload <= kSlotRoom;
}

}  // namespace ringdist::shm
