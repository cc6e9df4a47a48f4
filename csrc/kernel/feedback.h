// What error feedback keeps of a sum that was encoded. Any thread.
#pragma once

#include <span>

#include "base/buffers.h"
#include "kernel/residual_span.h"

namespace ringdist {

// What will be owed: to[i] = (keep ? from[i] : 0) + weight * (sum[i] - stored[i]); where that is
// not finite, from[i]. All of one size, no other overlaps than the residual's own.
void add_loss(ResidualSpan residual, bool keep, float weight, std::span<const float> sum,
              std::span<const float> stored);

// sum[i] = (first ? 0 : sum[i]) + in[i] + residual[i]; an empty residual counts as zeros.
void add_contribution(std::span<float> sum, bool first, std::span<const float> in,
                      std::span<const float> residual);

// out[i] = in[i] + residual.from[i], as the bytes of floats of any alignment, and residual.to[i] =
// 0: all is paid; where the sum is not finite, from[i]. All of one size.
void pay_in_full(std::span<const float> in, ResidualSpan residual, Bytes out);

void scale(std::span<float> values, float factor);
void divide(std::span<float> values, float divisor);

// True if every value is +0 or -0.
bool all_zero(std::span<const float> values);

}  // namespace ringdist
