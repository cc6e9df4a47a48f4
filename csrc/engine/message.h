// What every message between ranks says about itself, and the fingerprint by which ranks notice
// that they call different things. Both go over the wire as they lie here (little-endian);
// kWireVersion changes with them and is compared when a group is created.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "algorithm/schedule.h"
#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

inline constexpr uint16_t kWireVersion = 5;

// Group part: kind, dtype, reduce op, root, plan - equal on all ranks. Edge part: count - what the
// receiver of an edge compares with what it expects. Where all edges of an op are of one size that
// all ranks know, the count is the op's; else it is kPerEdge, and each edge's on its messages.
struct Fingerprint {
  Collective kind;
  DType dtype;
  ReduceOp reduce_op;
  uint8_t of_edge = 0;  // the count is the edge's
  int32_t root;
  uint64_t plan;  // plan_part()
  int64_t count;

  static constexpr int64_t kPerEdge = -1;
  // The root of an all_reduce that CompressState.state_dict() calls, for messages.
  static constexpr int32_t kOfState = -2;

  // All but eight bits of the plan's hash; those say which codec an op has, for messages.
  static uint64_t plan_part(uint64_t hash, uint8_t codec_id) { return hash << 8 | codec_id; }
  uint8_t codec_id() const { return static_cast<uint8_t>(plan); }

  bool operator==(const Fingerprint&) const = default;
  Fingerprint group_part() const {
    Fingerprint out = *this;
    if (of_edge != 0) out.count = kPerEdge;
    out.of_edge = 0;
    return out;
  }
  // "all_reduce(float32, 1000 elements, SUM, codec int4)"; safe for any bytes from the wire.
  std::string describe() const;
};
static_assert(std::is_trivially_copyable_v<Fingerprint> && sizeof(Fingerprint) == 24);

enum class MessageType : uint8_t {
  kData = 0,
  kRequest,     // sender -> receiver: this edge has data and no credit; segment: the first not sent
  kGrant,       // receiver -> sender: this edge may send every segment below `segment`
  kFirstGrant,  // the same, before the sender asked or sent anything
  kCredit,      // receiver -> sender: only the credit field matters
};

struct MessageHeader {
  MessageType type;
  uint8_t early;  // sent on the pair's credit, not on the edge's grant
  uint16_t reserved;
  uint32_t generation;
  int32_t source;
  int32_t destination;  // ranks in the group
  uint64_t nonce;       // the group
  uint64_t op;          // its number; of sends and receives, a SendName
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

}  // namespace ringdist
