// The stages of a Hadamard transform in AVX-512 registers. Only for files for that.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstring>

namespace ringdist::avx512 {

inline constexpr size_t kWidth = 16;  // floats in a register
// Shuffles take a mask of all lanes: GCC 12 warns of uninitialised values in those without (GCC bug
// 105593).
inline constexpr __mmask16 kAll = 0xffff;

[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline __m512 flip(__m512 x,
                                                                           const std::byte* signs) {
  __mmask16 mask;
  std::memcpy(&mask, signs, sizeof mask);
  return _mm512_mask_xor_ps(x, mask, x, _mm512_set1_ps(-0.0f));
}

// Partners are added; the upper one of a pair, of which `upper` tells, is subtracted. As a product
// with +-1, which rounds nothing, it is one instruction.
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline __m512 pair(__m512 x, __m512 partner,
                                                                           __mmask16 upper) {
  const __m512 sign = _mm512_mask_blend_ps(upper, _mm512_set1_ps(1), _mm512_set1_ps(-1));
  return _mm512_fmadd_ps(x, sign, partner);
}

// The stages 1, 2, 4 and 8, or the other way round.
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

[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void butterfly(__m512& a,
                                                                              __m512& b) {
  const __m512 sum = _mm512_add_ps(a, b);
  b = _mm512_sub_ps(a, b);
  a = sum;
}

// The stages between kRegisters registers, half of them kHalf apart.
template <size_t kRegisters, size_t kHalf>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void stage(__m512* r) {
#pragma GCC unroll 8
  for (size_t i = 0; i < kRegisters / 2; ++i) {
    const size_t at = i / kHalf * 2 * kHalf + i % kHalf;
    butterfly(r[at], r[at + kHalf]);
  }
}

template <bool kBack, size_t kRegisters, size_t kHalf = kBack ? kRegisters / 2 : 1>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void outer_stages(__m512* r) {
  if constexpr (kHalf > 0 && kHalf < kRegisters) {
    stage<kRegisters, kHalf>(r);
    outer_stages<kBack, kRegisters, kBack ? kHalf / 2 : kHalf * 2>(r);
  }
}

}  // namespace ringdist::avx512
