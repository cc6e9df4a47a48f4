// Stages of a Hadamard transform in AVX-512 registers. Include it only in files for AVX-512.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstring>

namespace ringdist::avx512 {

inline constexpr size_t kWidth = 16;  // floats in a register
// All lanes. Shuffles with a mask avoid a warning: GCC 12 reports uninitialised values in those
// without (GCC bug 105593).
inline constexpr __mmask16 kAll = 0xffff;

// Flips the signs of 16 floats that have their bit set in the two bytes at `signs`.
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline __m512 flip(__m512 x,
                                                                           const std::byte* signs) {
  __mmask16 mask;
  std::memcpy(&mask, signs, sizeof mask);
  return _mm512_mask_xor_ps(x, mask, x, _mm512_set1_ps(-0.0f));
}

// Computes one stage within a register: partners are added, and the upper one of each pair (set in
// `upper`) is subtracted. The multiplication by +-1 is exact and makes it one instruction.
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline __m512 pair(__m512 x, __m512 partner,
                                                                           __mmask16 upper) {
  const __m512 sign = _mm512_mask_blend_ps(upper, _mm512_set1_ps(1), _mm512_set1_ps(-1));
  return _mm512_fmadd_ps(x, sign, partner);
}

// Computes the stages 1, 2, 4 and 8, in the opposite order if kBack.
template <bool kBack>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline __m512 inner_stages(__m512 x) {
  if (kBack) {
    x = pair(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0x4e), 0xff00);
    x = pair(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0xb1), 0xf0f0);
  }
  if (!kBack) x = pair(x, _mm512_maskz_permute_ps(kAll, x, 0xb1), 0xaaaa);
  x = pair(x, _mm512_maskz_permute_ps(kAll, x, 0x4e), 0xcccc);
  if (kBack) return pair(x, _mm512_maskz_permute_ps(kAll, x, 0xb1), 0xaaaa);
  x = pair(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0xb1), 0xf0f0);
  return pair(x, _mm512_maskz_shuffle_f32x4(kAll, x, x, 0x4e), 0xff00);
}

// Replaces (a, b) by (a + b, a - b).
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void butterfly(__m512& a,
                                                                              __m512& b) {
  const __m512 sum = _mm512_add_ps(a, b);
  b = _mm512_sub_ps(a, b);
  a = sum;
}

// Computes the stage between kRegisters registers that are kHalf apart.
template <size_t kRegisters, size_t kHalf>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void stage(__m512* r) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters / 2; ++i) {
    const size_t at = i / kHalf * 2 * kHalf + i % kHalf;
    butterfly(r[at], r[at + kHalf]);
  }
}

// Computes all stages between the registers.
template <bool kBack, size_t kRegisters, size_t kHalf = kBack ? kRegisters / 2 : 1>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void outer_stages(__m512* r) {
  if constexpr (kHalf > 0 && kHalf < kRegisters) {
    stage<kRegisters, kHalf>(r);
    outer_stages<kBack, kRegisters, kBack ? kHalf / 2 : kHalf * 2>(r);
  }
}

}  // namespace ringdist::avx512
