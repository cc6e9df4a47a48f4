// Canonical Huffman codes of bytes, at most kMaxCodeBits long (D. Huffman, "A method for the
// construction of minimum-redundancy codes", 1952; canonical form: E. Schwartz, B. Kallick, 1964).
// Any thread. Same bytes on every machine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffers.h"

namespace ringdist {

inline constexpr int kMaxCodeBits = 12;

using Symbols = std::array<uint32_t, 256>;     // how often each byte occurs
using CodeLengths = std::array<uint8_t, 256>;  // bits of its code, 0 if it does not occur

Symbols count_symbols(std::span<const uint8_t> symbols);

// Complete (every string of bits decodes) if two or more symbols occur; a single one has no bits.
CodeLengths code_lengths(const Symbols& counts);

// Bytes that coding `counts` so takes.
size_t coded_bytes(const Symbols& counts, const CodeLengths& lengths);

// True if every string of bits decodes, whatever `lengths` holds.
bool is_complete(const CodeLengths& lengths);

// Writes the codes, first bit lowest, and zeros up to a whole byte. `out` holds coded_bytes() and 8
// more, which it may overwrite.
void huffman_encode(std::span<const uint8_t> symbols, const CodeLengths& lengths, std::byte* out);

// False if `in` is too short for out.size() symbols. The lengths must be complete.
bool huffman_decode(ConstBytes in, const CodeLengths& lengths, std::span<uint8_t> out);

}  // namespace ringdist
