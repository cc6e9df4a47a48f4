// Rotation for x86 with AVX2. Functions name their instruction set themselves: see reduce_avx2.cc.
#include "kernel/hadamard.h"

#if defined(__x86_64__)

#include "kernel/flip_avx2.h"

namespace ringdist {
namespace {

using namespace avx2;

constexpr size_t kWidth = 8;   // floats in a register
constexpr size_t kGroup = 64;  // elements transformed in registers

// Adds to each lane its partner; the upper lane of a pair changes its own sign first.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256 stage1(__m256 x) {
  const __m256 upper = _mm256_setr_ps(0, -0.0f, 0, -0.0f, 0, -0.0f, 0, -0.0f);
  return _mm256_add_ps(_mm256_permute_ps(x, 0xb1), _mm256_xor_ps(x, upper));
}

[[gnu::target("avx2"), gnu::always_inline]] inline __m256 stage2(__m256 x) {
  const __m256 upper = _mm256_setr_ps(0, 0, -0.0f, -0.0f, 0, 0, -0.0f, -0.0f);
  return _mm256_add_ps(_mm256_permute_ps(x, 0x4e), _mm256_xor_ps(x, upper));
}

[[gnu::target("avx2"), gnu::always_inline]] inline __m256 stage4(__m256 x) {
  const __m256 upper = _mm256_setr_ps(0, 0, 0, 0, -0.0f, -0.0f, -0.0f, -0.0f);
  return _mm256_add_ps(_mm256_permute2f128_ps(x, x, 1), _mm256_xor_ps(x, upper));
}

[[gnu::target("avx2"), gnu::always_inline]] inline void butterfly(__m256& a, __m256& b) {
  const __m256 sum = _mm256_add_ps(a, b);
  b = _mm256_sub_ps(a, b);
  a = sum;
}

// Computes the stages 8, 16 and 32 between eight registers, in the opposite order if kBack.
template <bool kBack>
[[gnu::target("avx2"), gnu::always_inline]] inline void outer_stages(__m256* r) {
#pragma GCC unroll 3
  for (size_t step = 0; step < 3; ++step) {
    const size_t half = kBack ? size_t{4} >> step : size_t{1} << step;
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = i / half * 2 * half + i % half;
      butterfly(r[at], r[at + half]);
    }
  }
}

// Transform kGroup elements without storing intermediate values: six stages for one load and one
// store.
[[gnu::target("avx2")]] void group_forward(const float* in, const std::byte* signs, float scale,
                                           float* out) {
  __m256 r[kGroup / kWidth];
  for (size_t i = 0; i < 8; ++i) {
    const __m256 x = flip(_mm256_loadu_ps(in + kWidth * i), signs[i]);
    r[i] = stage4(stage2(stage1(_mm256_mul_ps(x, _mm256_set1_ps(scale)))));
  }
  outer_stages<false>(r);
  for (size_t i = 0; i < 8; ++i) _mm256_storeu_ps(out + kWidth * i, r[i]);
}

[[gnu::target("avx2")]] void group_back(float* x, const std::byte* signs, float scale) {
  __m256 r[kGroup / kWidth];
  for (size_t i = 0; i < 8; ++i)
    r[i] = _mm256_mul_ps(_mm256_loadu_ps(x + kWidth * i), _mm256_set1_ps(scale));
  outer_stages<true>(r);
  for (size_t i = 0; i < 8; ++i)
    _mm256_storeu_ps(x + kWidth * i, flip(stage1(stage2(stage4(r[i]))), signs[i]));
}

// Computes the stages `half` and 2 * half, in the opposite order if kBack, in one pass over memory.
// Only kBack multiplies by `scale`, because the forward direction has done so in its first stages.
template <bool kBack>
[[gnu::target("avx2")]] void two_stages(float* x, size_t count, size_t half, float scale) {
  for (size_t block = 0; block < count; block += 4 * half) {
    for (size_t i = block; i < block + half; i += kWidth) {
      __m256 r[4];
      for (size_t j = 0; j < 4; ++j) {
        r[j] = _mm256_loadu_ps(x + i + j * half);
        if (kBack) r[j] = _mm256_mul_ps(r[j], _mm256_set1_ps(scale));
      }
      const size_t first = kBack ? 2 : 1;  // the distance of the first stage, in units of half
      butterfly(r[0], r[first]);
      butterfly(r[3 - first], r[3]);
      butterfly(r[0], r[3 - first]);
      butterfly(r[first], r[3]);
      for (size_t j = 0; j < 4; ++j) _mm256_storeu_ps(x + i + j * half, r[j]);
    }
  }
}

[[gnu::target("avx2")]] void one_stage(float* x, size_t count, size_t half, float scale) {
  for (size_t block = 0; block < count; block += 2 * half) {
    for (size_t i = block; i < block + half; i += kWidth) {
      __m256 a = _mm256_mul_ps(_mm256_loadu_ps(x + i), _mm256_set1_ps(scale));
      __m256 b = _mm256_mul_ps(_mm256_loadu_ps(x + i + half), _mm256_set1_ps(scale));
      butterfly(a, b);
      _mm256_storeu_ps(x + i, a);
      _mm256_storeu_ps(x + i + half, b);
    }
  }
}

[[gnu::target("avx2")]] void forward(const float* in, const std::byte* signs, float scale,
                                     size_t count, float* out) {
  if (count < kGroup) return rotation_baseline().forward(in, signs, scale, count, out);
  for (size_t i = 0; i < count; i += kGroup) group_forward(in + i, signs + i / 8, scale, out + i);
  size_t half = kGroup;
  for (; 4 * half <= count; half *= 4) two_stages<false>(out, count, half, 1);
  if (half < count) one_stage(out, count, half, 1);
}

[[gnu::target("avx2")]] void back(float* x, const std::byte* signs, float scale, size_t count) {
  if (count < kGroup) return rotation_baseline().back(x, signs, scale, count);
  size_t size = count;  // elements of each part that is still to be transformed on its own
  for (; size >= 4 * kGroup; size /= 4, scale = 1) two_stages<true>(x, count, size / 4, scale);
  if (size > kGroup) {
    one_stage(x, count, size / 2, scale);
    scale = 1;
  }
  for (size_t i = 0; i < count; i += kGroup) group_back(x + i, signs + i / 8, scale);
}

constexpr RotationLoops kLoops{forward, back};

}  // namespace

const RotationLoops* rotation_avx2() {
  static const bool can = __builtin_cpu_supports("avx2") != 0;
  return can ? &kLoops : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

const RotationLoops* rotation_avx2() { return nullptr; }

}  // namespace ringdist

#endif
