// The loops of codec `onebit`: sums, signs and what was lost, one block at a time. Memory needs no
// alignment; buffers do not overlap. Any thread. Same bits on every machine.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace ringdist {

inline constexpr size_t kSignBlock = 256;

struct SignLoops {
  // The first half of encoding a block of 1 <= count <= kSignBlock elements: sum[i] = in[i] +
  // residual[i] (null: in[i]), zeros up to kSignBlock, and one bit per element in `bits`, set where
  // the sum is negative, lowest bit first, (count + 7) / 8 bytes. Returns the sum of magnitudes in
  // fp32: 32 running sums, then pairwise. Not finite if an element is not, or if it overflows.
  float (*take)(const float* in, const float* residual, size_t count, float* sum, std::byte* bits);
  // residual[i] = sum[i] - copysign(scale, sum[i])
  void (*lose)(const float* sum, float scale, size_t count, float* residual);
  // out[i] = scale, negative where the bit is set; or adds that.
  void (*decode)(const std::byte* bits, float scale, bool accumulate, float* out, size_t count);
};

// The fastest loops of this processor.
const SignLoops& sign_loops();

// For tests to compare; the second is null where this processor has no AVX2.
const SignLoops& sign_baseline();
const SignLoops* sign_avx2();

// Asks for memory before it is needed. Loops that go twice over each block leave the processor's
// own prefetching behind: encoding with a residual gains a third from this.

// Elements [begin, begin + count), as far as there are any.
inline void prefetch(std::span<const float> values, size_t begin, size_t count) {
  constexpr size_t kLine = 64 / sizeof(float);
  const size_t end = std::min(begin + count, values.size());
  for (size_t i = begin; i < end; i += kLine) __builtin_prefetch(values.data() + i);
}

}  // namespace ringdist
