// Wire format of messages between ranks: the header, its types, and the numbering of sends and
// receives. The header is sent as it lies in memory (little-endian). A change of it requires a new
// kWireVersion, which ranks compare when they create a group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/buffers.h"
#include "plan/fingerprint.h"
#include "plan/op_spec.h"

namespace ringdist {

inline constexpr uint16_t kWireVersion = 13;

// Kind of a message. "Sender" and "receiver" below are those of the edge's data.
enum class MessageType : uint8_t {
  kData = 0,
  kRequest,  // sender -> receiver: requests a grant for the edge. `segment` is the first that has
             // not been sent
  kGrant,    // receiver -> sender: grants every segment below `segment`
  kFirstGrant,  // the same, unsolicited: before the sender has sent a request or data
  kCredit,      // receiver -> sender: only the credit field is used
  kService,  // data of a GroupService: `op` is the number of the part in the stream from source to
             // destination, `segment` is 1 in the last part of a service message
};

// Header of every message. Fields that a type does not use are zero.
struct MessageHeader {
  MessageType type;
  uint8_t eager;  // 1 if sent on eager credit, not on a grant
  uint16_t reserved;
  uint32_t generation;
  int32_t source;
  int32_t destination;  // source and destination are ranks in the group
  uint64_t nonce;       // nonce of the group
  uint64_t op;          // number of the op; for sends and receives a PointToPointId
  uint32_t edge;        // number of the edge among those of this op from source to destination
  uint32_t segment;
  uint64_t credit;  // total bytes of the destination's eager messages that the source has consumed
  Fingerprint fingerprint;  // only on messages that may be the first of an op at the peer
};
static_assert(std::is_trivially_copyable_v<MessageHeader> && sizeof(MessageHeader) == 72);

// Size of a header without the fingerprint.
inline constexpr size_t kShortHeaderBytes = sizeof(MessageHeader) - sizeof(Fingerprint);

// Returns true if a message of this kind carries the fingerprint: requests, unsolicited grants, and
// the first segment of an edge.
inline bool carries_fingerprint(const MessageHeader& header) {
  return header.type == MessageType::kRequest || header.type == MessageType::kFirstGrant ||
         (header.type == MessageType::kData && header.segment == 0);
}

// Returns the bytes of the header to send, with the fingerprint only where it is needed. The view
// is valid as long as `header`.
ConstBytes header_bytes(const MessageHeader& header);
// Parses a received header. Returns false if the bytes cannot be one; then `header` is undefined.
// Ranks, numbers and the fingerprint are not checked.
bool parse_header(ConstBytes bytes, MessageHeader& header);

// Identifier of a send or receive in message headers, where a collective has its op number. It
// consists of a mark bit, the tag and tag space, which form a channel, and a count of the sends per
// (source, destination). The count may wrap, because it only has to distinguish the messages of a
// channel that are in flight. So no state is kept for tags that are not in use.
//
// From the highest bit: 1 bit mark, 31 bits tag (never negative), 2 bits tag space, 30 bits count.
struct PointToPointId {
  static constexpr uint64_t kMark = uint64_t{1} << 63;
  static constexpr int kCountBits = 30;
  static constexpr uint64_t kCounts = (uint64_t{1} << kCountBits) - 1;
  // Returns true if the header field `op` is a PointToPointId, and not the number of a collective.
  static bool names(uint64_t op) { return (op & kMark) != 0; }
  // Returns the channel of a tag and tag space, or of an identifier: its bits without the count.
  static uint64_t channel(int32_t tag, Envelope::TagSpace origin) {
    return kMark | static_cast<uint64_t>(tag) << 32 | static_cast<uint64_t>(origin) << kCountBits;
  }
  static uint64_t channel(uint64_t op) { return op & ~kCounts; }
  // Returns the identifier of the send with the given count.
  static uint64_t make(uint64_t channel, uint32_t count) { return channel | (count & kCounts); }
  static int32_t tag(uint64_t op) { return static_cast<int32_t>((op & ~kMark) >> 32); }
};

// Messages of sends up to this size in bytes are sent eagerly, before the receiver has granted
// anything.
inline constexpr size_t kEagerBytes = 4096;

}  // namespace ringdist
