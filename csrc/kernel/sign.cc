#include "kernel/sign.h"

#include <array>
#include <bit>
#include <cstring>

namespace ringdist {
namespace {

constexpr size_t kLanes = 32;
constexpr uint32_t kSign = 0x80000000;

float magnitude(float x) { return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & ~kSign); }

// Adds the running sums pairwise. All implementations use it, so the bits are the same.
[[gnu::always_inline]] inline float total(std::array<float, kLanes>& lanes) {
  for (size_t width = kLanes / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Writes the signs of sums from `begin` on: the end of a block, or all of it without AVX2.
void take_signs(const float* sum, size_t begin, size_t count, std::byte* bits) {
  for (size_t at = begin; at < count; at += 8) {
    uint32_t byte = 0;
    for (size_t i = 0; i < 8 && at + i < count; ++i)
      byte |= (std::bit_cast<uint32_t>(sum[at + i]) >> 31) << i;
    bits[at / 8] = static_cast<std::byte>(byte);
  }
}

float take_baseline(const float* in, const float* residual, size_t count, float* __restrict sum,
                    std::byte* bits) {
  for (size_t i = 0; i < count; ++i) sum[i] = residual == nullptr ? in[i] : in[i] + residual[i];
  for (size_t i = count; i < kSignBlock; ++i) sum[i] = 0;
  std::array<float, kLanes> lanes{};
  for (size_t at = 0; at < kSignBlock; at += kLanes)
    for (size_t i = 0; i < kLanes; ++i) lanes[i] += magnitude(sum[at + i]);
  take_signs(sum, 0, count, bits);
  return total(lanes);
}

[[gnu::always_inline]] inline void lose_loop(const float* sum, float scale, size_t count,
                                             float* __restrict residual) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t sign = std::bit_cast<uint32_t>(sum[i]) & kSign;
    residual[i] = sum[i] - std::bit_cast<float>(bits ^ sign);
  }
}

void lose_baseline(const float* sum, float scale, size_t count, float* residual) {
  lose_loop(sum, scale, count, residual);
}

void decode_from(const std::byte* bits, float scale, bool accumulate, float* out, size_t begin,
                 size_t count) {
  for (size_t i = begin; i < count; ++i) {
    const uint32_t bit = static_cast<uint32_t>(bits[i / 8]) >> (i % 8);
    const auto x = std::bit_cast<float>(std::bit_cast<uint32_t>(scale) ^ (bit << 31));
    out[i] = accumulate ? out[i] + x : x;
  }
}

void decode_baseline(const std::byte* bits, float scale, bool accumulate, float* out,
                     size_t count) {
  decode_from(bits, scale, accumulate, out, 0, count);
}

constexpr SignLoops kBaseline{take_baseline, lose_baseline, decode_baseline};

}  // namespace

const SignLoops& sign_baseline() { return kBaseline; }

const SignLoops& sign_loops() {
  static const SignLoops& best = sign_avx2() != nullptr ? *sign_avx2() : kBaseline;
  return best;
}

}  // namespace ringdist

#if defined(__x86_64__)

#include <immintrin.h>

namespace ringdist {
namespace {

// Encodes a whole block. Register i of `lanes` has the running sums 8 i to 8 i + 7.
template <bool kResidual>
[[gnu::target("avx2"), gnu::always_inline]] inline float take_whole(const float* in,
                                                                    const float* residual,
                                                                    float* sum, std::byte* bits) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  __m256 lanes[4] = {_mm256_setzero_ps(), _mm256_setzero_ps(), _mm256_setzero_ps(),
                     _mm256_setzero_ps()};
  for (size_t at = 0; at < kSignBlock; at += kLanes) {
    uint32_t mask = 0;
    for (size_t i = 0; i < 4; ++i) {
      __m256 x = _mm256_loadu_ps(in + at + 8 * i);
      if (kResidual) x = _mm256_add_ps(x, _mm256_loadu_ps(residual + at + 8 * i));
      _mm256_storeu_ps(sum + at + 8 * i, x);
      lanes[i] = _mm256_add_ps(lanes[i], _mm256_andnot_ps(sign, x));
      mask |= static_cast<uint32_t>(_mm256_movemask_ps(x)) << (8 * i);
    }
    std::memcpy(bits + at / 8, &mask, sizeof mask);
  }
  std::array<float, kLanes> out;
  for (size_t i = 0; i < 4; ++i) _mm256_storeu_ps(&out[8 * i], lanes[i]);
  return total(out);
}

[[gnu::target("avx2")]] float take_avx2(const float* in, const float* residual, size_t count,
                                        float* sum, std::byte* bits) {
  if (count < kSignBlock) return take_baseline(in, residual, count, sum, bits);
  return residual == nullptr ? take_whole<false>(in, residual, sum, bits)
                             : take_whole<true>(in, residual, sum, bits);
}

[[gnu::target("avx2")]] void lose_avx2(const float* sum, float scale, size_t count,
                                       float* residual) {
  lose_loop(sum, scale, count, residual);
}

// Decodes `whole` elements, a multiple of 8. Each bit is shifted to the sign of its lane.
template <bool kAdd>
[[gnu::target("avx2"), gnu::always_inline]] inline void decode_bytes(const std::byte* bits,
                                                                     float scale, float* out,
                                                                     size_t whole) {
  const __m256i to_top = _mm256_setr_epi32(31, 30, 29, 28, 27, 26, 25, 24);
  const __m256i top = _mm256_set1_epi32(static_cast<int>(kSign));
  const __m256 value = _mm256_set1_ps(scale);
  for (size_t at = 0; at < whole; at += 8) {
    const __m256i byte = _mm256_set1_epi32(static_cast<int>(bits[at / 8]));
    const __m256i sign = _mm256_and_si256(_mm256_sllv_epi32(byte, to_top), top);
    __m256 x = _mm256_xor_ps(value, _mm256_castsi256_ps(sign));
    if (kAdd) x = _mm256_add_ps(_mm256_loadu_ps(out + at), x);
    _mm256_storeu_ps(out + at, x);
  }
}

[[gnu::target("avx2")]] void decode_avx2(const std::byte* bits, float scale, bool accumulate,
                                         float* out, size_t count) {
  const size_t whole = count / 8 * 8;
  if (accumulate)
    decode_bytes<true>(bits, scale, out, whole);
  else
    decode_bytes<false>(bits, scale, out, whole);
  decode_from(bits, scale, accumulate, out, whole, count);
}

constexpr SignLoops kAvx2{take_avx2, lose_avx2, decode_avx2};

}  // namespace

const SignLoops* sign_avx2() {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  return can ? &kAvx2 : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

const SignLoops* sign_avx2() { return nullptr; }

}  // namespace ringdist

#endif
