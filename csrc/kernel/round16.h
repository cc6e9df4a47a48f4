// Conversions of fp32 to 16 bits for codecs `fp16` and `bf16`. Finite values stay finite, and
// rounding errors can be kept as residuals. Memory needs no alignment; inputs and outputs do not
// overlap, except for the two halves of a residual. Any thread. Same bits on every machine.
#pragma once

#include <span>

#include "base/buffers.h"
#include "kernel/block_format.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Implementation for one instruction set. Rounds `in`, or in + from if there is a residual, to
// nearest even and writes 2 bytes each to `out`. Finite values beyond the largest finite one become
// that. inf stays, and NaN becomes the canonical one.
//
// The new residual is to[i] = in[i] + from[i] - rounded. Where that is not finite, to[i] = from[i].
struct Round16Loops {
  void (*to_half)(std::span<const float> in, ResidualSpan residual, Bytes out);
  // With stochastic rounding, the magnitude is rounded up with a probability equal to its fraction.
  void (*to_bfloat)(std::span<const float> in, ResidualSpan residual, Stochastic rounding,
                    Bytes out);
};

// Returns the fastest loops of this processor.
const Round16Loops& round16();

// Return single implementations, for tests to compare. The result is null if this processor lacks
// the instructions.
const Round16Loops* round16_baseline();
const Round16Loops* round16_avx2();
const Round16Loops* round16_avx512();  // F, BW, DQ, VL

}  // namespace ringdist
