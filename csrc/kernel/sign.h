// Loops of codec `onebit`: sums, signs and losses, one block at a time. Memory needs no alignment;
// buffers do not overlap. Any thread. Same bits on every machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringdist {

inline constexpr size_t kSignBlock = 256;

// Implementation for one instruction set.
struct SignLoops {
  // Encodes a block of 1 <= count <= kSignBlock elements, except for the scale. Computes sum[i] =
  // in[i] + residual[i] (null counts as zeros) and fills `sum` up to kSignBlock with zeros. Writes
  // one bit per element to `bits`, lowest bit first, (count + 7) / 8 bytes. A bit is set if the
  // sign bit of the sum is, also for -0.
  //
  // Returns the sum of magnitudes in fp32, which is made of 32 running sums that are added
  // pairwise. It is not finite if an element is not finite, or on overflow.
  float (*take)(const float* in, const float* residual, size_t count, float* sum, std::byte* bits);
  // Computes residual[i] = sum[i] - copysign(scale, sum[i]), for a scale that is not negative.
  void (*lose)(const float* sum, float scale, size_t count, float* residual);
  // Computes out[i] = scale, with a minus sign where the bit is set. If `accumulate`, it adds that
  // to out[i].
  void (*decode)(const std::byte* bits, float scale, bool accumulate, float* out, size_t count);
};

// Returns the fastest loops of this processor.
const SignLoops& sign_loops();

// Return single implementations, for tests to compare. sign_avx2() is null if this processor lacks
// AVX2.
const SignLoops& sign_baseline();
const SignLoops* sign_avx2();

// Prefetches elements [begin, begin + count), as far as they exist. Loops that pass twice over each
// block outrun the processor's own prefetching: encoding with a residual gains a third from this.
inline void prefetch(std::span<const float> values, size_t begin, size_t count) {
  constexpr size_t kLine = 64 / sizeof(float);
  const size_t end = std::min(begin + count, values.size());
  for (size_t i = begin; i < end; i += kLine) __builtin_prefetch(values.data() + i);
}

}  // namespace ringdist
