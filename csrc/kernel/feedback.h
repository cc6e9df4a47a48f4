// Vector loops for error feedback: residuals of encoded sums. Any thread. Same bits on every
// machine.
#pragma once

#include <span>

#include "base/buffers.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Updates a residual to `keep ? from[i] : 0` plus weight * (sum[i] - stored[i]). Where that is not
// finite, to[i] = from[i]. All spans have one size. Only the two halves of the residual may
// overlap.
void add_loss(ResidualSpan residual, bool keep, float weight, std::span<const float> sum,
              std::span<const float> stored);

// Computes sum[i] += in[i] + residual[i], with in[i] + residual[i] rounded first. If `first`, the
// old sum is not read and counts as nothing. An empty residual is left out.
void add_contribution(std::span<float> sum, bool first, std::span<const float> in,
                      std::span<const float> residual);

// Adds the whole residual: out[i] = in[i] + residual.from[i], rounded to fp32, and residual.to[i] =
// 0. It serves ops with values that travel as fp32, so nothing else is lost. Where the sum is not
// finite, residual.to[i] = residual.from[i]. `out` holds floats of any alignment. All have one
// size.
void pay_in_full(std::span<const float> in, ResidualSpan residual, Bytes out);

// Multiply or divide all values in place.
void scale(std::span<float> values, float factor);
void divide(std::span<float> values, float divisor);

// Returns true if every value is +0 or -0.
bool all_zero(std::span<const float> values);

}  // namespace ringdist
