// Where things are in what the codec `lossless` sends (codec/lossless.spec.md): one text for a CPU
// and a device.
#pragma once

#include <cstdint>

namespace ringdist {

struct LosslessChunk {
  static constexpr int kElements = 8192;  // that share a code
  static constexpr int kRun = 256;        // elements whose codes begin where the chunk says
  static constexpr int kRuns = kElements / kRun;

  int count;    // elements, at least 1
  int element;  // bytes of one

  constexpr int runs() const { return (count + kRun - 1) / kRun; }
  constexpr int elements_of(int run) const {
    return count - run * kRun < kRun ? count - run * kRun : kRun;
  }
  constexpr int raw_bytes() const { return count * element; }
  constexpr int rest_bytes() const { return count * (element - 1); }

  // Of one that is packed, with symbols from `first` to `last`.
  static constexpr int lengths_at() { return 2; }
  static constexpr int bits_at(int first, int last) {
    return lengths_at() + (last - first + 2) / 2;
  }
  constexpr int codes_at(int first, int last) const {
    return first == last ? lengths_at() : bits_at(first, last) + 2 * runs();
  }
  constexpr int rests_at(int first, int last, int code_bits) const {
    return codes_at(first, last) + (code_bits + 7) / 8;
  }
  constexpr int packed_bytes(int first, int last, int code_bits) const {
    return rests_at(first, last, code_bits) + rest_bytes();
  }
  // Whether so many are fewer. What is kept lets an encoder write eight bytes at a time.
  constexpr bool pays(int packed) const { return packed + 8 <= raw_bytes(); }
};

// In front of all chunks.
inline constexpr int kLosslessLength = 4;  // bytes: that of all that follows
inline constexpr int kLosslessSize = 2;    // of each chunk

}  // namespace ringdist
