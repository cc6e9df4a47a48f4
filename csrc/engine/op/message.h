// What every message between ranks says about itself. It goes over the wire as it lies here
// (little-endian); kWireVersion changes with it and is compared when a group is created.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/buffers.h"
#include "plan/fingerprint.h"
#include "plan/op_spec.h"

namespace ringdist {

inline constexpr uint16_t kWireVersion = 11;

enum class MessageType : uint8_t {
  kData = 0,
  kRequest,     // sender -> receiver: this edge has data and no credit; segment: the first not sent
  kGrant,       // receiver -> sender: this edge may send every segment below `segment`
  kFirstGrant,  // the same, before the sender asked or sent anything
  kCredit,      // receiver -> sender: only the credit field matters
  kService,     // of no op: part `op` of all that the source says by letters; segment: 1, it is a
                // letter's last
};

struct MessageHeader {
  MessageType type;
  uint8_t eager;  // sent on the pair's credit, not on the edge's grant
  uint16_t reserved;
  uint32_t generation;
  int32_t source;
  int32_t destination;  // ranks in the group
  uint64_t nonce;       // the group
  uint64_t op;          // its number; of sends and receives, a PointToPointId
  uint32_t edge;        // counts the sends of this op from source to destination
  uint32_t segment;
  uint64_t
      credit;  // bytes of early messages of the destination that the source has consumed so far
  Fingerprint fingerprint;  // only on what a peer may hear first of an op
};
static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) == 72);

// The header without the fingerprint, where that is not needed.
inline constexpr size_t kShortHeaderBytes = sizeof(MessageHeader) - sizeof(Fingerprint);

inline bool carries_fingerprint(const MessageHeader& header) {
  return header.type == MessageType::kRequest || header.type == MessageType::kFirstGrant ||
         (header.type == MessageType::kData && header.segment == 0);
}

ConstBytes header_bytes(const MessageHeader& header);
// False if the bytes cannot be a header.
bool parse_header(ConstBytes bytes, MessageHeader& header);

// What sends are called on the wire.

// Names of sends, where collectives have their numbers: a mark, the tag and the origin, which make
// a channel, and a count per (source, destination) that may wrap. Nothing is kept of a tag that is
// not in use, as the count only has to tell the messages of a channel apart.
struct PointToPointId {
  static constexpr uint64_t kMark = uint64_t{1} << 63;
  static constexpr int kCountBits = 30;
  static constexpr uint64_t kCounts = (uint64_t{1} << kCountBits) - 1;
  static bool names(uint64_t op) { return (op & kMark) != 0; }
  static uint64_t channel(int32_t tag, Envelope::TagSpace origin) {
    return kMark | static_cast<uint64_t>(tag) << 32 | static_cast<uint64_t>(origin) << kCountBits;
  }
  static uint64_t channel(uint64_t op) { return op & ~kCounts; }
  static uint64_t make(uint64_t channel, uint32_t count) { return channel | (count & kCounts); }
  static int32_t tag(uint64_t op) { return static_cast<int32_t>((op & ~kMark) >> 32); }
};

// Data up to here travels before the receiver has asked for it.
inline constexpr size_t kEagerBytes = 4096;

}  // namespace ringdist
