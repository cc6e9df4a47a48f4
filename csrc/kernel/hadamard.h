// Randomised rotation of a block: seeded sign flips and the fast Walsh-Hadamard transform (Ailon,
// Chazelle, "The fast Johnson-Lindenstrauss transform", 2009). Any thread. Same bits on every
// machine: all implementations run the stages in the same order, which fixes how sums are rounded.
//
// H is the matrix of +-1 in Hadamard order, so H H = count * identity. `count` is a power of two.
// Bit i of `signs` (bit i % 8 of byte i / 8) is set if the sign of element i is flipped.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringdist {

// Bits of the magnitude (2^100) from which a block is scaled down first, by kRotationShrink.
// Otherwise, the sums of the transform could overflow.
inline constexpr uint32_t kRotationHuge = (127 + 100) << 23;
inline constexpr float kRotationShrink = 0x1p-28f;

// Implementation of the rotation for one instruction set.
struct RotationLoops {
  // Computes out = H (scale * signs * in). `in` and `out` may be the same.
  void (*forward)(const float* in, const std::byte* signs, float scale, size_t count, float* out);
  // Computes the inverse direction: x = signs * H (scale * x).
  void (*back)(float* x, const std::byte* signs, float scale, size_t count);
};

// Returns the fastest implementation for this processor.
const RotationLoops& rotation_loops();

// Return single implementations, for tests to compare. The result is null if this processor lacks
// the instructions.
const RotationLoops& rotation_baseline();
const RotationLoops* rotation_avx2();
const RotationLoops* rotation_avx512();

}  // namespace ringdist
