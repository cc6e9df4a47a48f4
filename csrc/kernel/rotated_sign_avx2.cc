// Loops for x86 with AVX2. Functions name their instruction set themselves: see reduce_avx2.cc.
#include "kernel/rotated_sign.h"

#if defined(__x86_64__)

#include <cstring>

#include "kernel/flip_avx2.h"
#include "kernel/hadamard.h"
#include "kernel/select.h"

namespace ringdist {
namespace {

using namespace avx2;

constexpr size_t kFloats = 8;      // floats in a register
constexpr float kScale = 0x1p-4f;  // scale of either direction; their product is 1 / kSignBlock

// Runs step by step in memory of the first-level cache, because there are too few registers.
uint32_t take(const float* in, const float* residual, const std::byte* flips, float* sum,
              std::byte* bits, float* total) {
  constexpr size_t kAhead =
      512;  // elements; the processor's own prefetching stops at the end of a page
  for (size_t line = kAhead; line < kAhead + kSignBlock; line += 16) {
    __builtin_prefetch(in + line);
    if (residual != nullptr) __builtin_prefetch(residual + line);
  }
  alignas(32) float rotated[kSignBlock];
  alignas(32) float copied[kSignBlock];
  const uint32_t largest = sum_block(in, residual, kSignBlock, residual == nullptr ? copied : sum);
  rotation_avx2()->forward(residual == nullptr ? in : sum, flips, kScale, kSignBlock, rotated);
  *total = sign_avx2()->take(rotated, nullptr, kSignBlock, copied, bits);
  return largest;
}

// Returns 32 numbers of 8 bits: -1 where the bit is set, else 1.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i numbers_of(const std::byte* bits) {
  int word;
  std::memcpy(&word, bits, sizeof word);
  const __m256i byte =
      _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
  const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
  const __m256i spread = _mm256_shuffle_epi8(_mm256_set1_epi32(word), byte);
  const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
  return _mm256_or_si256(set, _mm256_set1_epi8(1));
}

[[gnu::target("avx2"), gnu::always_inline]] inline void butterfly8(__m256i& a, __m256i& b) {
  const __m256i sum = _mm256_add_epi8(a, b);
  b = _mm256_sub_epi8(a, b);
  a = sum;
}

// Computes the stages 32, 64 and 128, between registers.
[[gnu::target("avx2"), gnu::always_inline]] inline void register_stages(__m256i* r) {
#pragma GCC unroll 3
  for (size_t half = 1; half < 8; half *= 2) {
#pragma GCC unroll 4
    for (size_t i = 0; i < 4; ++i) {
      const size_t at = i / half * 2 * half + i % half;
      butterfly8(r[at], r[at + half]);
    }
  }
}

// Adds to each number its partner; the number itself is negated first where `sign` is -1.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i stage(__m256i x, __m256i partner,
                                                                 int64_t sign) {
  return _mm256_add_epi8(_mm256_shuffle_epi8(x, partner),
                         _mm256_sign_epi8(x, _mm256_set1_epi64x(sign)));
}

// Computes the stages 1, 2 and 4.
[[gnu::target("avx2"), gnu::always_inline]] inline __m256i byte_stages(__m256i x) {
  const __m256i by1 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
  const __m256i by2 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
  const __m256i by4 = _mm256_broadcastsi128_si256(
      _mm_setr_epi8(4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
  x = stage(x, by1, static_cast<int64_t>(0xff01ff01ff01ff01));
  x = stage(x, by2, static_cast<int64_t>(0xffff0101ffff0101));
  return stage(x, by4, static_cast<int64_t>(0xffffffff01010101));
}

// Source and destination of a decoded block. `unit` is the scale of the integers in all lanes.
struct Target {
  const std::byte* flips;
  __m256 unit;
  const float* from;
  float* out;
};

// Scales 8 integers, flips their signs back and stores, adds or subtracts them.
template <Into kInto>
[[gnu::target("avx2"), gnu::always_inline]] inline void store(const Target& to, size_t at,
                                                              __m128i numbers) {
  const __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(numbers));
  __m256 x = flip(_mm256_mul_ps(value, to.unit), to.flips[at / 8]);
  if (kInto == Into::kAdd) x = _mm256_add_ps(_mm256_loadu_ps(to.from + at), x);
  if (kInto == Into::kSubtract) x = _mm256_sub_ps(_mm256_loadu_ps(to.from + at), x);
  _mm256_storeu_ps(to.out + at, x);
}

// Computes the stage 8 of 16 numbers.
template <Into kInto>
[[gnu::target("avx2"), gnu::always_inline]] inline void last_stage(const Target& to, size_t at,
                                                                   __m256i x) {
  const __m128i a = _mm256_castsi256_si128(x);
  const __m128i b = _mm256_extracti128_si256(x, 1);
  store<kInto>(to, at, _mm_add_epi16(a, b));
  store<kInto>(to, at + kFloats, _mm_sub_epi16(a, b));
}

// Decodes a block. The first six stages fit into 8 bits, so the last two widen the numbers to 16.
// Sums of integers are exact, so the stages may run in any order: those between registers come
// first.
template <Into kInto>
[[gnu::target("avx2")]] void back(const std::byte* bits, const std::byte* flips, float scale,
                                  const float* from, float* out) {
  const Target to{flips, _mm256_set1_ps(scale * kScale), from, out};
  __m256i r[8];
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) r[i] = numbers_of(bits + 4 * i);
  register_stages(r);
#pragma GCC unroll 8
  for (size_t i = 0; i < 8; ++i) {
    const __m256i x = byte_stages(r[i]);
    const __m256i a = _mm256_cvtepi8_epi16(_mm256_castsi256_si128(x));
    const __m256i b = _mm256_cvtepi8_epi16(_mm256_extracti128_si256(x, 1));
    last_stage<kInto>(to, 32 * i, _mm256_add_epi16(a, b));  // stage 16
    last_stage<kInto>(to, 32 * i + 16, _mm256_sub_epi16(a, b));
  }
}

constexpr RotatedSignLoops kLoops{take, back<Into::kStore>, back<Into::kAdd>,
                                  back<Into::kSubtract>};

}  // namespace

const RotatedSignLoops* rotated_sign_avx2() { return sign_avx2() != nullptr ? &kLoops : nullptr; }

}  // namespace ringdist

#else

namespace ringdist {

const RotatedSignLoops* rotated_sign_avx2() { return nullptr; }

}  // namespace ringdist

#endif
