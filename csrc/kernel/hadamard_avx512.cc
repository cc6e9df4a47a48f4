// Rotation for x86 with AVX-512. Functions name their instruction set themselves: see
// reduce_avx2.cc.
#include "kernel/hadamard.h"

#if defined(__x86_64__)

#include "kernel/hadamard_avx512.h"

namespace ringdist {
namespace {

using namespace avx512;

// Transforms kRegisters * kWidth elements in registers. `in` may be `out`, because all is loaded
// before the first store.
template <bool kBack, size_t kRegisters>
[[gnu::target("avx512f,avx512dq")]] void group(const float* in, const std::byte* signs, float scale,
                                               float* out) {
  __m512 r[kRegisters];
#pragma GCC unroll 16
  for (size_t i = 0; i < kRegisters; ++i) {
    __m512 x = _mm512_loadu_ps(in + kWidth * i);
    if (!kBack) x = flip(x, signs + 2 * i);
    x = _mm512_mul_ps(x, _mm512_set1_ps(scale));
    r[i] = kBack ? x : inner_stages<false>(x);
  }
  outer_stages<kBack, kRegisters>(r);
#pragma GCC unroll 16
  for (size_t i = 0; i < kRegisters; ++i) {
    if (kBack) r[i] = flip(inner_stages<true>(r[i]), signs + 2 * i);
    _mm512_storeu_ps(out + kWidth * i, r[i]);
  }
}

// Computes the stages kStride and 2 * kStride of 4 * kStride elements, in the opposite order if
// kBack.
constexpr size_t kStride = 256;

template <bool kBack>
[[gnu::target("avx512f,avx512dq")]] void last_stages(float* x, float scale) {
  for (size_t i = 0; i < kStride; i += kWidth) {
    __m512 r[4];
    for (size_t j = 0; j < 4; ++j)
      r[j] = _mm512_mul_ps(_mm512_loadu_ps(x + i + j * kStride), _mm512_set1_ps(scale));
    outer_stages<kBack, 4>(r);
    for (size_t j = 0; j < 4; ++j) _mm512_storeu_ps(x + i + j * kStride, r[j]);
  }
}

// The block sizes of the codecs have code of their own; the powers of two of a tail use AVX2.
[[gnu::target("avx512f,avx512dq")]] void forward(const float* in, const std::byte* signs,
                                                 float scale, size_t count, float* out) {
  if (count == 128) return group<false, 8>(in, signs, scale, out);
  if (count == 256) return group<false, 16>(in, signs, scale, out);
  if (count != 1024) return rotation_avx2()->forward(in, signs, scale, count, out);
  for (size_t i = 0; i < count; i += kStride)
    group<false, 16>(in + i, signs + i / 8, scale, out + i);
  last_stages<false>(out, 1);
}

[[gnu::target("avx512f,avx512dq")]] void back(float* x, const std::byte* signs, float scale,
                                              size_t count) {
  if (count == 128) return group<true, 8>(x, signs, scale, x);
  if (count == 256) return group<true, 16>(x, signs, scale, x);
  if (count != 1024) return rotation_avx2()->back(x, signs, scale, count);
  last_stages<true>(x, scale);
  for (size_t i = 0; i < count; i += kStride) group<true, 16>(x + i, signs + i / 8, 1, x + i);
}

constexpr RotationLoops kLoops{forward, back};

}  // namespace

const RotationLoops* rotation_avx512() {
  static const bool can = rotation_avx2() != nullptr && __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0;
  return can ? &kLoops : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

const RotationLoops* rotation_avx512() { return nullptr; }

}  // namespace ringdist

#endif
