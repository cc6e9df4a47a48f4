// What sends are called on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

#include "plan/op_spec.h"

namespace ringdist {

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
