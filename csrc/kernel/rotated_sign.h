// The loops of codec `onebit+h`: what hadamard.h and sign.h do one after the other, over a whole
// block at a time. The way back from signs is taken in integers, which are smaller: the transform
// of +-1 is a whole number of at most 9 bits, so that scale * number, with a scale of bf16, is what
// fp32 would have summed, without rounding. Any thread. Same bits on every machine.
#pragma once

#include <cstddef>

#include "kernel/sign.h"

namespace ringdist {

enum class Into { kStore, kAdd, kSubtract };  // what the loops below are made from

struct RotatedSignLoops {
  // Of kSignBlock elements: sum[i] = in[i] + residual[i] (null: in[i], and `sum` is left alone), as
  // sum_block() of select.h, whose result is returned; these, rotated as by RotationLoops::forward
  // with scale 1/16: their signs in `bits`, the sum of their magnitudes in `total`, both as
  // SignLoops::take. `flips` are the rotation's signs. May prefetch beyond the block.
  uint32_t (*take)(const float* in, const float* residual, const std::byte* flips, float* sum,
                   std::byte* bits, float* total);
  // What +-scale rotates back to, by RotationLoops::back with scale 1/16, call it x: out = x, out =
  // from + x, out = from - x. `from` may be `out`; store() does not look at it. `scale` is a bf16
  // that is neither 0 nor subnormal, and 16 * scale finite.
  using Back = void (*)(const std::byte* bits, const std::byte* flips, float scale,
                        const float* from, float* out);
  Back store;
  Back add;
  Back subtract;
};

// The fastest loops of this processor, or null: then hadamard.h and sign.h do it.
const RotatedSignLoops* rotated_sign_loops();

// For tests to compare; null where this processor lacks the instructions.
const RotatedSignLoops* rotated_sign_avx2();
const RotatedSignLoops* rotated_sign_avx512();

}  // namespace ringdist
