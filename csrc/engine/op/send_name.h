// What sends are called on the wire.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringdist {

// Names of sends, where collectives have their numbers: a mark, the tag, a count per (source,
// destination, tag) that may wrap.
struct SendName {
  static constexpr uint64_t kMark = uint64_t{1} << 63;
  static bool names(uint64_t op) { return (op & kMark) != 0; }
  static uint64_t make(int32_t tag, uint32_t count) {
    return kMark | static_cast<uint64_t>(tag) << 32 | count;
  }
  static int32_t tag(uint64_t op) { return static_cast<int32_t>((op & ~kMark) >> 32); }
};

// Data up to here travels before the receiver has asked for it.
inline constexpr size_t kEagerBytes = 4096;

}  // namespace ringdist
