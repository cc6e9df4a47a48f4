#include "kernel/hadamard.h"

#include <bit>
#include <cstdint>

namespace ringdist {
namespace {

// Replaces pairs of elements that are `half` apart by their sums and differences. log2(count) such
// stages, each with twice the distance, give the transform in count * log2(count) additions.
void stage(float* x, size_t count, size_t half) {
  for (size_t block = 0; block < count; block += 2 * half) {
    float* __restrict low = x + block;
    float* __restrict high = low + half;
    for (size_t i = 0; i < half; ++i) {
      const float sum = low[i] + high[i];
      high[i] = low[i] - high[i];
      low[i] = sum;
    }
  }
}

float flipped(float x, const std::byte* signs, size_t i) {
  const auto bit = static_cast<uint32_t>(signs[i / 8] >> (i % 8)) & 1;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) ^ (bit << 31));
}

void forward(const float* in, const std::byte* signs, float scale, size_t count, float* out) {
  for (size_t i = 0; i < count; ++i) out[i] = flipped(in[i], signs, i) * scale;
  for (size_t half = 1; half < count; half *= 2) stage(out, count, half);
}

// Runs the stages in the opposite order. So the signs follow directly after the stages of
// neighbours, which other implementations keep in registers.
void back(float* x, const std::byte* signs, float scale, size_t count) {
  for (size_t i = 0; i < count; ++i) x[i] *= scale;
  for (size_t half = count / 2; half > 0; half /= 2) stage(x, count, half);
  for (size_t i = 0; i < count; ++i) x[i] = flipped(x[i], signs, i);
}

constexpr RotationLoops kBaseline{forward, back};

const RotationLoops& best() {
  if (rotation_avx512() != nullptr) return *rotation_avx512();
  return rotation_avx2() != nullptr ? *rotation_avx2() : kBaseline;
}

}  // namespace

const RotationLoops& rotation_baseline() { return kBaseline; }

const RotationLoops& rotation_loops() {
  static const RotationLoops& out = best();
  return out;
}

}  // namespace ringdist
