// fp32 to fp16 and bf16 for the codecs of these names: what is finite stays finite, and what
// rounding loses can be kept. Memory needs no alignment; inputs and outputs do not overlap. Any
// thread. Same bits on every machine.
#pragma once

#include <span>

#include "base/buffers.h"
#include "kernel/block_format.h"
#include "kernel/residual_span.h"

namespace ringdist {

// The elements of `in`, or of in + from unless that is empty, rounded to nearest even: 2 bytes
// each in `out`. Finite values beyond the largest finite one become that; inf stays, NaN becomes
// the canonical one. to[i] = in[i] + from[i] - rounded, but from[i] where that is not
// finite.
struct Round16Loops {
  void (*to_half)(std::span<const float> in, ResidualSpan residual, Bytes out);
  // With stochastic rounding the magnitude goes up with the probability of its fraction.
  void (*to_bfloat)(std::span<const float> in, ResidualSpan residual, Stochastic rounding,
                    Bytes out);
};

// The fastest loops of this processor.
const Round16Loops& round16();

// For tests to compare. Null where this processor cannot run them.
const Round16Loops* round16_baseline();
const Round16Loops* round16_avx2();
const Round16Loops* round16_avx512();  // F, BW, DQ, VL

}  // namespace ringdist
