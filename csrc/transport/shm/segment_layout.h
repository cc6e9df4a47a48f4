// Layout of the memory that a Context shares with the other processes of its host. Each Context has
// one shm segment and is its only writer; its peers map it for reading. So no process can damage
// another's memory, and every counter has one writer.
//
//   ControlBlock  The sleep state, and how much of each incoming channel was consumed.
//   Ring[]        A queue of messages with short payloads for each outgoing channel.
//   chunks        Longer payloads. One chunk can be in the rings of several peers.
//
// A payload that lies in a shared tensor is in none of these. Its message names the export
// (block_exports.h) and the offset in it, and the sender marks the message before that memory
// changes.
//
// A message is published by increasing its ring's counter and is consumed in order (ring.h). A
// process that goes to sleep first publishes its sleep state and then checks the rings once more. A
// writer checks the sleep state after it has published (base/dekker_word.h).
//
// A channel ends by its counters as well. `kLast` in the published counter marks that nothing
// follows. `kLast` in the consumed counter marks that nothing more is read, after which the sender
// may reuse the ring's messages.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "transport/shm/memory_orders.h"

namespace ringdist::shm {

inline constexpr uint32_t kLayoutVersion = 4;
inline constexpr size_t kCacheLine = 64;
inline constexpr size_t kMaxChannels = 256;  // per direction: peers that share a host
inline constexpr size_t kSlots = 128;        // messages in flight per channel
inline constexpr size_t kSlotRoom = 240;     // bytes for header and short payload
inline constexpr size_t kSmallChunk = 4096;
inline constexpr size_t kSmallChunks = 1024;
inline constexpr size_t kLargeChunk = size_t{256} << 10;
inline constexpr size_t kLargeChunks = 64;               // in use at once, without those reserved
inline constexpr size_t kReservedChunks = kMaxChannels;  // for channels that hold none
inline constexpr size_t kPayloadAlignment = 16;          // alignment of short payloads
inline constexpr size_t kMaxExports = 256;           // blocks that the reader of one channel maps
inline constexpr uint32_t kExportNumbers = 1 << 16;  // the number has 16 bits in export_address()
// Payloads up to this size are copied even from shared tensors. The copy is cheaper than to keep
// the send open until the receiver has read.
inline constexpr size_t kMostCopied = size_t{64} << 10;

inline constexpr uint64_t kLast = uint64_t{1} << 63;  // bit of a counter

// A counter in shared memory, on a cache line of its own.
template <typename Orders>
struct alignas(kCacheLine) Counter {
  DekkerWord<uint64_t, Orders> value;
};

// Fields of Slot::header: the mask of the header's size, and flags.
inline constexpr uint32_t kHeaderSizeMask = 0xffff;
inline constexpr uint32_t kExported = 1 << 16;  // the payload lies in an export
inline constexpr uint32_t kRevoked = 1 << 17;   // the payload was revoked and may have changed
inline constexpr uint32_t kExportAnnounced =
    1 << 18;  // an export message was sent before this message

// One message.
struct Slot {
  std::atomic<uint32_t> header;  // kHeaderSizeMask and the flags
  uint32_t payload_size;
  // Offset in the segment, or export address. 0 if the payload is behind the header in `bytes`.
  uint64_t payload_at;
  std::array<std::byte, kSlotRoom> bytes;
};
static_assert(sizeof(Slot) == 256);

// The queue of one outgoing channel.
struct Ring {
  Counter<PublishedOrders> published;
  std::array<Slot, kSlots> slots;
};

// The sleep state of a Context, which decides if a peer must ring its doorbell.
enum class SleepState : uint32_t {
  kAwake = 0,
  kForMessages,  // asleep, and in need of no room
  kForRoom,      // for room in a ring, and for messages
};

// The part of a segment that all peers read.
struct ControlBlock {
  alignas(kCacheLine) DekkerWord<SleepState, SleepOrders> sleep;
  // Per incoming channel: the messages consumed by this Context.
  std::array<Counter<ConsumedOrders>, kMaxChannels> consumed;
};

// The fixed part of a segment; the chunks follow.
struct ShmSegment {
  ControlBlock front;
  std::array<Ring, kMaxChannels> rings;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
                  std::atomic<SleepState>::is_always_lock_free,
              "processes cannot share a lock");

constexpr size_t round_up(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

// Small chunks come first, because a reader maps the chunks up to the last one that was used.
inline constexpr size_t kChunksAt = round_up(sizeof(ShmSegment), kLargeChunk);
inline constexpr size_t kLargeAt = kChunksAt + kSmallChunks * kSmallChunk;
inline constexpr size_t kSegmentBytes = kLargeAt + (kLargeChunks + kReservedChunks) * kLargeChunk;

// Returns the number of bytes that a reader must map to see ring `index`.
constexpr size_t end_of_ring(uint32_t index) {
  return sizeof(ControlBlock) + (index + 1) * sizeof(Ring);
}
static_assert(end_of_ring(kMaxChannels - 1) == sizeof(ShmSegment));

// Packs and unpacks Slot::payload_at for a payload in an export: the export's number in the upper
// 16 bits, the offset in bytes below.
constexpr uint64_t export_address(uint32_t export_id, uint64_t offset) {
  return uint64_t{export_id} << 48 | offset;
}
constexpr uint32_t export_of(uint64_t place) { return static_cast<uint32_t>(place >> 48); }
constexpr uint64_t offset_in_export(uint64_t place) { return place & ((uint64_t{1} << 48) - 1); }

// Returns the offset in Slot::bytes of a short payload behind its header.
constexpr size_t short_payload_at(size_t header) { return round_up(header, kPayloadAlignment); }
// Returns true if header and payload fit in the slot. Both in bytes.
constexpr bool is_short(size_t header, size_t payload) {
  return short_payload_at(header) + payload <= kSlotRoom;
}

}  // namespace ringdist::shm
