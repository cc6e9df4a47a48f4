// Canonical Huffman codes of bytes, of at most kMaxCodeBits bits (D. Huffman, "A method for the
// construction of minimum-redundancy codes", 1952; canonical form by E. Schwartz, B. Kallick,
// 1964). No errors and no allocations. Any thread. Same bytes on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "kernel/huffman_tree.h"

namespace ringdist {

using Symbols = std::array<uint32_t, 256>;     // number of occurrences of each byte
using CodeLengths = std::array<uint8_t, 256>;  // bits of each byte's code; 0 if it does not occur

// Counts how often each byte occurs.
Symbols count_symbols(std::span<const uint8_t> symbols);

// Returns the code lengths for these counts. If two or more symbols occur, the code is complete:
// every string of bits decodes. A single symbol gets a code of no bits.
CodeLengths code_lengths(const Symbols& counts);

// Returns the number of bits that symbols with these counts take.
size_t coded_bits(const Symbols& counts, const CodeLengths& lengths);

// Returns true if every string of bits decodes, to one symbol only. `lengths` may hold anything. A
// code is complete if the sum of 2^-length is 1 (Kraft), because the canonical form then leaves no
// gap.
bool is_complete(const CodeLengths& lengths);

// Writes codes one after another, first bit lowest. One thread at a time.
class HuffmanWriter {
 public:
  // `out` has space for all codes and 8 bytes more, which may be overwritten. `lengths` must
  // outlive the writer.
  HuffmanWriter(const CodeLengths& lengths, std::byte* out);

  // Appends the codes of `symbols` and returns how many bits they take. Each must have a code.
  size_t put(std::span<const uint8_t> symbols);
  // Pads the last byte with zeros and writes it. put() must not follow.
  void finish();

 private:
  const CodeLengths& lengths_;
  const std::array<uint16_t, 256> codes_;
  std::byte* out_;
  uint64_t bits_ = 0;
  unsigned held_ = 0;  // number of valid bits in bits_, less than 8 between calls
};

// Decodes runs until `out` is full. Each run has `each` symbols (the last may have fewer) and takes
// its entry of `bits`; runs follow one another in `in`. Returns false if the codes of a run take
// more or fewer bits. `in` must hold all bits, and `lengths` must be complete.
bool huffman_decode(ConstBytes in, const CodeLengths& lengths, std::span<const uint16_t> bits,
                    size_t each, std::span<uint8_t> out);

}  // namespace ringdist
