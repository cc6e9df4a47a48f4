// Wire format of a connection of transport `tcp` after the greeting. The dialing side sends
// records: a RecordHead, the message's header, its payload. The other side answers with
// acknowledgements, each a little-endian u64: how many records of the channel it has handled since
// the channel began. Its first one is the answer to the DataHello, and the sender goes on from
// there.
//
// A record also carries the count of the opposite direction. So where two processes send to each
// other, the count arrives before the answer, which may overwrite the payload of a send.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/transport.h"

namespace ringdist::tcp {

// Kinds of records. A flush has neither header nor payload; it requests an acknowledgement at once.
enum class RecordKind : uint16_t { kMessage = 0, kFlush = 1 };

// First bytes of a record, in the byte order of the machine, which is little-endian.
struct RecordHead {
  uint64_t number = 0;      // position in the channel, from 0
  uint64_t handled = 0;     // records of the opposite channel that the sender has handled
  uint32_t of_channel = 0;  // number of that channel; 0 if there is none
  uint32_t payload_bytes = 0;
  uint16_t header_bytes = 0;
  RecordKind kind = RecordKind::kMessage;
  uint32_t reserved = 0;

  // Returns true if the record can come next and is not too large.
  bool is_valid(uint64_t next, size_t max_payload) const {
    return number == next && payload_bytes <= max_payload && header_bytes <= kMaxHeaderBytes &&
           (kind == RecordKind::kMessage || kind == RecordKind::kFlush);
  }
  size_t bytes() const { return sizeof(RecordHead) + header_bytes + payload_bytes; }
};
static_assert(sizeof(RecordHead) == 32, "no padding");

// The part of a record about the channel of the opposite direction.
struct Handled {
  uint32_t channel = 0;
  uint64_t count = 0;
};

// Payloads up to this size are copied when they are sent, and their send ends at once. Larger ones
// are sent from the caller's memory, and their send ends when the receiver has acknowledged it.
inline constexpr size_t kMostCopiedBytes = 4096;

}  // namespace ringdist::tcp
