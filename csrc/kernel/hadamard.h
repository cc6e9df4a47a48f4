// A randomised rotation of a block: seeded signs and the fast Walsh-Hadamard transform (Ailon,
// Chazelle: "The fast Johnson-Lindenstrauss transform", 2009). Any thread. Same bits on every
// machine.
//
// H is the matrix of +-1 in Hadamard order: H H = count * identity. `count` is a power of two. Bit
// i of `signs` (bit i % 8 of byte i / 8) is set where element i changes its sign.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringdist {

// From these bits of a magnitude on (2^100) a block is taken scaled down, lest the sums of the
// transform overflow.
inline constexpr uint32_t kRotationHuge = (127 + 100) << 23;
inline constexpr float kRotationShrink = 0x1p-28f;

struct RotationLoops {
  // out = H (scale * signs * in). `in` and `out` may be the same.
  void (*forward)(const float* in, const std::byte* signs, float scale, size_t count, float* out);
  // x = signs * H (scale * x)
  void (*back)(float* x, const std::byte* signs, float scale, size_t count);
};

// The fastest loops of this processor.
const RotationLoops& rotation_loops();

// For tests to compare; null where this processor lacks the instructions.
const RotationLoops& rotation_baseline();
const RotationLoops* rotation_avx2();
const RotationLoops* rotation_avx512();

}  // namespace ringdist
