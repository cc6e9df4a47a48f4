// Layout of the data of codec `lossless` (codec/lossless.spec.md). CPU and device share this code,
// so they cannot disagree. Pure values; any thread.
#pragma once

#include <cstdint>

namespace ringdist {

// One chunk: elements that share a Huffman code. Functions that end in `_at` return offsets in
// bytes.
struct LosslessChunk {
  static constexpr int kElements = 8192;  // elements of a chunk, which share a code
  static constexpr int kRun =
      256;  // elements of a run; the chunk stores how many bits the codes of each run take
  static constexpr int kRuns = kElements / kRun;

  int count;    // elements, at least 1
  int element;  // bytes of one

  // Number of runs, elements of one run, bytes unpacked, and bytes of the parts that are not
  // encoded.
  constexpr int runs() const { return (count + kRun - 1) / kRun; }
  constexpr int elements_of(int run) const {
    return count - run * kRun < kRun ? count - run * kRun : kRun;
  }
  constexpr int raw_bytes() const { return count * element; }
  constexpr int rest_bytes() const { return count * (element - 1); }

  // Offsets in a packed chunk with symbols from `first` to `last`: code lengths, bits of each run,
  // codes, rests. If first == last, there are no lengths, bits and codes. packed_bytes() is the
  // size of the whole.
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
  // Returns true if `packed` bytes are enough of a gain. The margin of 8 lets an encoder write
  // eight bytes at a time.
  constexpr bool pays(int packed) const { return packed + 8 <= raw_bytes(); }
};

// Sizes of the headers in front of all chunks.
inline constexpr int kLosslessLength = 4;  // bytes of the length of everything that follows
inline constexpr int kLosslessSize = 2;    // bytes of the size of each chunk

}  // namespace ringdist
