// Canonical Huffman codes of bytes, at most kMaxCodeBits long (D. Huffman, "A method for the
// construction of minimum-redundancy codes", 1952; canonical form: E. Schwartz, B. Kallick, 1964).
// Any thread. Same bytes on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "kernel/huffman_tree.h"

namespace ringdist {

using Symbols = std::array<uint32_t, 256>;     // how often each byte occurs
using CodeLengths = std::array<uint8_t, 256>;  // bits of its code, 0 if it does not occur

Symbols count_symbols(std::span<const uint8_t> symbols);

// Complete (every string of bits decodes) if two or more symbols occur; a single one has no bits.
CodeLengths code_lengths(const Symbols& counts);

// Bits that coding `counts` so takes.
size_t coded_bits(const Symbols& counts, const CodeLengths& lengths);

// True if every string of bits decodes, whatever `lengths` holds.
bool is_complete(const CodeLengths& lengths);

// Writes codes one after another, first bit lowest. One thread at a time.
class HuffmanWriter {
 public:
  // `out` holds what is to come and 8 bytes more, which it may overwrite.
  HuffmanWriter(const CodeLengths& lengths, std::byte* out);

  // Returns the bits that they take.
  size_t put(std::span<const uint8_t> symbols);
  // Zeros up to a whole byte.
  void finish();

 private:
  const CodeLengths& lengths_;
  const std::array<uint16_t, 256> codes_;
  std::byte* out_;
  uint64_t bits_ = 0;
  unsigned held_ = 0;  // below 8
};

// Decodes runs of `each` symbols, the last of which may be shorter, each of which takes its `bits`,
// one after another: as many as fill `out`. False if the codes of a run take more or fewer. `in`
// holds all of their bits; the lengths must be complete.
bool huffman_decode(ConstBytes in, const CodeLengths& lengths, std::span<const uint16_t> bits,
                    size_t each, std::span<uint8_t> out);

}  // namespace ringdist
