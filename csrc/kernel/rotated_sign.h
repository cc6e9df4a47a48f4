// Loops of codec `onebit+h`. They combine hadamard.h and sign.h over a whole block at a time.
// Decoding works in integers, which are smaller: the transform of +-1 is an integer of at most 9
// bits. So scale * integer, with a bf16 scale, equals the fp32 sum without rounding. Any thread.
// Same bits on every machine.
#pragma once

#include <cstddef>

#include "kernel/sign.h"

namespace ringdist {

enum class Into { kStore, kAdd, kSubtract };  // variants of the decoding loops

// Implementation for one instruction set. Blocks have kSignBlock elements.
struct RotatedSignLoops {
  // Encodes a block. Computes sum[i] = in[i] + residual[i] and returns the result of sum_block() in
  // select.h. If `residual` is null, it uses in[i] and leaves `sum` unchanged. The sums are rotated
  // as by RotationLoops::forward with scale 1/16 and sign flips `flips`.
  //
  // It writes their signs to `bits` and the sum of their magnitudes to `total`, as SignLoops::take
  // does. It may prefetch beyond the block.
  uint32_t (*take)(const float* in, const float* residual, const std::byte* flips, float* sum,
                   std::byte* bits, float* total);
  // Decodes a block. Let x be +-scale rotated by RotationLoops::back with scale 1/16. store()
  // computes out = x, add() computes out = from + x, and subtract() computes out = from - x.
  //
  // `from` may be `out`; store() does not read it. `scale` is a bf16 that is neither 0 nor
  // subnormal, and 16 * scale is finite.
  using Back = void (*)(const std::byte* bits, const std::byte* flips, float scale,
                        const float* from, float* out);
  Back store;
  Back add;
  Back subtract;
};

// Returns the fastest loops of this processor. If it is null, callers use hadamard.h and sign.h
// instead.
const RotatedSignLoops* rotated_sign_loops();

// Return single implementations, for tests to compare. The result is null if this processor lacks
// the instructions.
const RotatedSignLoops* rotated_sign_avx2();
const RotatedSignLoops* rotated_sign_avx512();

}  // namespace ringdist
