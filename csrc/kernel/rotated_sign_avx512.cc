// Loops for x86 with AVX-512. Functions name their instruction set themselves: see reduce_avx2.cc.
#include "kernel/rotated_sign.h"

#if defined(__x86_64__)

#include <algorithm>

#include "kernel/hadamard_avx512.h"

namespace ringdist {
namespace {

using namespace avx512;

constexpr size_t kRegisters = kSignBlock / kWidth;
constexpr float kScale = 0x1p-4f;  // scale of either direction; their product is 1 / kSignBlock
constexpr __mmask32 kAll32 = ~__mmask32{0};
constexpr __mmask64 kAll64 = ~__mmask64{0};

// Returns the sum of magnitudes: element i goes to running sum i % 32, and these are added
// pairwise.
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline float total_of(const __m512* r) {
  __m512 low = _mm512_setzero_ps();
  __m512 high = _mm512_setzero_ps();
#pragma GCC unroll 16
  for (size_t i = 0; i < kRegisters; ++i) {
    __m512& lanes = i % 2 == 0 ? low : high;
    lanes = _mm512_add_ps(lanes, _mm512_andnot_ps(_mm512_set1_ps(-0.0f), r[i]));
  }
  float lanes[kWidth];
  _mm512_storeu_ps(lanes, _mm512_add_ps(low, high));
  for (size_t width = kWidth / 2; width > 0; width /= 2)
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  return lanes[0];
}

// Encodes a block. Its 256 elements fill 16 of the 32 registers, so the rotation stores nothing.
template <bool kResidual>
[[gnu::target("avx512f,avx512bw,avx512dq")]] uint32_t take_as(const float* in,
                                                              const float* residual,
                                                              const std::byte* flips, float* sum,
                                                              std::byte* bits, float* total) {
  constexpr size_t kAhead =
      512;  // elements; the processor's own prefetching stops at the end of a page
  __m512 r[kRegisters];
  __m512i largest = _mm512_setzero_si512();
#pragma GCC unroll 16
  for (size_t i = 0; i < kRegisters; ++i) {
    const size_t at = kWidth * i;
    __builtin_prefetch(in + at + kAhead);
    if (kResidual) __builtin_prefetch(residual + at + kAhead);
    __m512 x = _mm512_loadu_ps(in + at);
    if (kResidual) {
      x = _mm512_add_ps(x, _mm512_loadu_ps(residual + at));
      _mm512_storeu_ps(sum + at, x);
    }
    const __m512 magnitude = _mm512_andnot_ps(_mm512_set1_ps(-0.0f), x);
    largest = _mm512_maskz_max_epu32(kAll, largest, _mm512_castps_si512(magnitude));
    x = _mm512_mul_ps(flip(x, flips + 2 * i), _mm512_set1_ps(kScale));
    r[i] = inner_stages<false>(x);
  }
  outer_stages<false, kRegisters>(r);
#pragma GCC unroll 16
  for (size_t i = 0; i < kRegisters; ++i) {
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(r[i]));
    std::memcpy(bits + 2 * i, &negative, sizeof negative);
  }
  *total = total_of(r);
  uint32_t lanes[kWidth];
  _mm512_storeu_si512(lanes, largest);
  return *std::max_element(lanes, lanes + kWidth);
}

uint32_t take(const float* in, const float* residual, const std::byte* flips, float* sum,
              std::byte* bits, float* total) {
  return residual == nullptr ? take_as<false>(in, nullptr, flips, sum, bits, total)
                             : take_as<true>(in, residual, flips, sum, bits, total);
}

// Computes one stage on numbers of 8 bits: partners are added, and the upper one of each pair is
// subtracted.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512i pair8(__m512i x,
                                                                             __m512i partner,
                                                                             __mmask64 upper) {
  return _mm512_mask_sub_epi8(_mm512_add_epi8(partner, x), upper, partner, x);
}

// Shuffles the bytes of each 128-bit lane by the 16 indices at `order`.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512i swapped(__m512i x,
                                                                               const char* order) {
  const __m128i lane = _mm_loadu_si128(reinterpret_cast<const __m128i*>(order));
  return _mm512_maskz_shuffle_epi8(kAll64, x, _mm512_maskz_broadcast_i32x4(kAll, lane));
}

// Computes the stages 1, 2, 4 and 8.
[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline __m512i byte_stages(__m512i x) {
  static constexpr char kBy1[] = {1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14};
  x = pair8(x, swapped(x, kBy1), 0xaaaaaaaaaaaaaaaa);
  static constexpr char kBy2[] = {2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13};
  x = pair8(x, swapped(x, kBy2), 0xcccccccccccccccc);
  x = pair8(x, _mm512_maskz_shuffle_epi32(kAll, x, _MM_PERM_CDAB), 0xf0f0f0f0f0f0f0f0);
  return pair8(x, _mm512_maskz_shuffle_epi32(kAll, x, _MM_PERM_BADC), 0xff00ff00ff00ff00);
}

[[gnu::target("avx512f,avx512bw"), gnu::always_inline]] inline void butterfly8(__m512i& a,
                                                                               __m512i& b) {
  const __m512i sum = _mm512_add_epi8(a, b);
  b = _mm512_sub_epi8(a, b);
  a = sum;
}

// Source and destination of a decoded block. `unit` is the scale of the integers in all lanes.
struct Target {
  const std::byte* flips;
  __m512 unit;
  const float* from;
  float* out;
};

// Scales 16 integers, flips their signs back and stores, adds or subtracts them.
template <Into kInto>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void store(const Target& to,
                                                                          size_t at,
                                                                          __m256i numbers) {
  const __m512i wide = _mm512_maskz_cvtepi16_epi32(kAll, numbers);
  const __m512 value = _mm512_maskz_cvtepi32_ps(kAll, wide);
  __m512 x = flip(_mm512_mul_ps(value, to.unit), to.flips + at / 8);
  if (kInto == Into::kAdd) x = _mm512_add_ps(_mm512_loadu_ps(to.from + at), x);
  if (kInto == Into::kSubtract) x = _mm512_sub_ps(_mm512_loadu_ps(to.from + at), x);
  _mm512_storeu_ps(to.out + at, x);
}

template <int kIndex>
[[gnu::target("avx512f"), gnu::always_inline]] inline __m256i half(__m512i x) {
  return _mm512_maskz_extracti64x4_epi64(0xff, x, kIndex);
}

// Computes the stage 16 of 32 numbers.
template <Into kInto>
[[gnu::target("avx512f,avx512dq"), gnu::always_inline]] inline void last_stage(const Target& to,
                                                                               size_t at,
                                                                               __m512i x) {
  const __m256i a = half<0>(x);
  const __m256i b = half<1>(x);
  store<kInto>(to, at, _mm256_add_epi16(a, b));
  store<kInto>(to, at + kWidth, _mm256_sub_epi16(a, b));
}

// Decodes a block. The first six stages fit into 8 bits, so the last two widen the numbers to 16.
// Sums of integers are exact, so the stages may run in any order (see rotated_sign_avx2.cc).
template <Into kInto>
[[gnu::target("avx512f,avx512bw,avx512dq")]] void back(const std::byte* bits,
                                                       const std::byte* flips, float scale,
                                                       const float* from, float* out) {
  const Target to{flips, _mm512_set1_ps(scale * kScale), from, out};
  __m512i r[4];
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    __mmask64 negative;
    std::memcpy(&negative, bits + 8 * i, sizeof negative);
    r[i] = _mm512_mask_blend_epi8(negative, _mm512_set1_epi8(1), _mm512_set1_epi8(-1));
  }
  butterfly8(r[0], r[1]);
  butterfly8(r[2], r[3]);
  butterfly8(r[0], r[2]);
  butterfly8(r[1], r[3]);
#pragma GCC unroll 4
  for (size_t i = 0; i < 4; ++i) {
    const __m512i x = byte_stages(r[i]);
    const __m512i a = _mm512_maskz_cvtepi8_epi16(kAll32, half<0>(x));
    const __m512i b = _mm512_maskz_cvtepi8_epi16(kAll32, half<1>(x));
    last_stage<kInto>(to, 64 * i, _mm512_add_epi16(a, b));  // stage 32
    last_stage<kInto>(to, 64 * i + 32, _mm512_sub_epi16(a, b));
  }
}

constexpr RotatedSignLoops kLoops{take, back<Into::kStore>, back<Into::kAdd>,
                                  back<Into::kSubtract>};

}  // namespace

const RotatedSignLoops* rotated_sign_avx512() {
  static const bool can = __builtin_cpu_supports("avx512f") != 0 &&
                          __builtin_cpu_supports("avx512bw") != 0 &&
                          __builtin_cpu_supports("avx512dq") != 0;
  return can ? &kLoops : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

const RotatedSignLoops* rotated_sign_avx512() { return nullptr; }

}  // namespace ringdist

#endif
