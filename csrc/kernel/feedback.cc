#include "kernel/feedback.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "kernel/cast.h"
#include "kernel/half.h"

namespace ringdist {

void add_loss(ResidualSpan residual, bool keep, float weight, std::span<const float> sum,
              std::span<const float> stored) {
  const size_t n = residual.count;
  const float* from = residual.from;
  float* to = residual.to;
  const uint32_t mask = keep ? ~uint32_t{0} : 0;
  // `from` may be `to`: element i depends on element i only, which the pragma asserts.
#pragma GCC ivdep
  for (size_t i = 0; i < n; ++i) {
    const auto old_residual = std::bit_cast<uint32_t>(from[i]);
    const float next = std::bit_cast<float>(old_residual & mask) + weight * (sum[i] - stored[i]);
    to[i] =
        std::bit_cast<float>(select(is_finite(next), std::bit_cast<uint32_t>(next), old_residual));
  }
}

void add_contribution(std::span<float> sum, bool first, std::span<const float> in,
                      std::span<const float> residual) {
  float* __restrict out = sum.data();
  const size_t n = sum.size();
  if (residual.empty()) {
    for (size_t i = 0; first && i < n; ++i) out[i] = in[i];
    for (size_t i = 0; !first && i < n; ++i) out[i] += in[i];
  } else {
    for (size_t i = 0; first && i < n; ++i) out[i] = in[i] + residual[i];
    for (size_t i = 0; !first && i < n; ++i) out[i] += in[i] + residual[i];
  }
}

void pay_in_full(std::span<const float> in, ResidualSpan residual, Bytes out) {
  const float* from = residual.from;
  float* to = residual.to;
  std::byte* bytes = out.data();
#pragma GCC ivdep
  for (size_t i = 0; i < in.size(); ++i) {
    const auto old_residual = std::bit_cast<uint32_t>(from[i]);
    const float sum = in[i] + from[i];
    std::memcpy(bytes + i * sizeof(float), &sum, sizeof(float));
    to[i] = std::bit_cast<float>(select(is_finite(sum), uint32_t{0}, old_residual));
  }
}

void scale(std::span<float> values, float factor) {
  for (float& x : values) x *= factor;
}

void divide(std::span<float> values, float divisor) {
  for (float& x : values) x /= divisor;
}

// The shift drops the sign bit, so that -0 counts as zero and a NaN does not.
bool all_zero(std::span<const float> values) {
  constexpr size_t kChunk = 256;  // vectorised inside; the loop over chunks ends early
  for (size_t begin = 0; begin < values.size(); begin += kChunk) {
    uint32_t any = 0;
    for (float x : values.subspan(begin, std::min(kChunk, values.size() - begin)))
      any |= std::bit_cast<uint32_t>(x) << 1;
    if (any != 0) return false;
  }
  return true;
}

}  // namespace ringdist
