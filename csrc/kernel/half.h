// Conversions between float and the two 16-bit formats. They use integer operations and selects,
// and for subnormals an addition of normal floats. So a loop over them vectorises and gives the
// same bits on every machine, even if the thread flushes subnormals to zero. Rounding is to
// nearest, ties to even. Too large values become inf. Every NaN becomes the canonical quiet NaN of
// the target, which is positive and has only the quiet bit set. fp16 follows F. Giesen,
// "Float->half variants" (2012, public domain).
#pragma once

#include <bit>
#include <cstdint>

namespace ringdist {

inline constexpr uint16_t kHalfNaN = 0x7e00;
inline constexpr uint16_t kBFloatNaN = 0x7fc0;

// Returns a or b by masks. A plain `?:` may become a branch, and its loop would not vectorise then.
template <typename Bits>
[[gnu::always_inline]] constexpr Bits select(bool take_a, Bits a, Bits b) {
  const Bits mask = Bits{0} - static_cast<Bits>(take_a);
  return (a & mask) | (b & ~mask);
}

// Decodes bfloat16, which is the upper half of a float.
[[gnu::always_inline]] constexpr float bfloat_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

// Encodes a float as bfloat16. Adding half of the dropped range, or one unit less if the kept bits
// are even, makes the cut round to nearest even.
[[gnu::always_inline]] constexpr uint16_t float_to_bfloat(float f) {
  const auto u = std::bit_cast<uint32_t>(f);
  const uint32_t rounded = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  const bool nan = (u & 0x7fffffff) > 0x7f800000;
  return static_cast<uint16_t>(select<uint32_t>(nan, kBFloatNaN, rounded));
}

// Decodes fp16, which has 5 exponent bits with bias 15, and 10 mantissa bits.
[[gnu::always_inline]] constexpr float half_to_float(uint16_t h) {
  constexpr uint32_t kRebias = (127 - 15) << 23;
  constexpr uint32_t kExponent = 0x7c00 << 13;
  const uint32_t magnitude = static_cast<uint32_t>(h & 0x7fff) << 13;
  const uint32_t exponent = magnitude & kExponent;
  const uint32_t normal = magnitude + kRebias;
  const uint32_t infinite = normal + kRebias;  // 31 + 2 * 112 = 255
  // A subnormal is m * 2^-24. This builds 2^-14 + m * 2^-24, which is normal, and subtracts 2^-14.
  const float small = std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f;
  uint32_t out = select(exponent == kExponent, infinite, normal);
  out = select(exponent == 0, std::bit_cast<uint32_t>(small), out);
  return std::bit_cast<float>(out | static_cast<uint32_t>(h & 0x8000) << 16);
}

// Encodes a float as fp16.
[[gnu::always_inline]] constexpr uint16_t float_to_half(float f) {
  constexpr uint32_t kTooLarge = (127 + 16) << 23;     // 2^16
  constexpr uint32_t kFirstNormal = (127 - 14) << 23;  // 2^-14
  const auto u = std::bit_cast<uint32_t>(f);
  const uint32_t magnitude = u & 0x7fffffff;
  // Rounding carries into the exponent, so that 65520 and more become inf.
  const uint32_t odd = (magnitude >> 13) & 1;
  const uint32_t normal = (magnitude - ((127 - 15) << 23) + 0xfff + odd) >> 13;
  // Adding 0.5 makes the adder round to a multiple of 2^-24, which is the unit of subnormals.
  // Operands outside of the range of this branch are replaced by 0, so that large numbers do not
  // raise overflow.
  const uint32_t bounded = select(magnitude < kFirstNormal, magnitude, 0u);
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(bounded) + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  uint32_t out = select(magnitude < kFirstNormal, small, normal);
  out = select<uint32_t>(magnitude >= kTooLarge, 0x7c00, out);
  out |= (u >> 16) & 0x8000;
  return static_cast<uint16_t>(select<uint32_t>(magnitude > 0x7f800000, kHalfNaN, out));
}

// Largest finite bf16. finite_bfloat() serves values that must stay finite.
inline constexpr uint16_t kLargestBFloat = 0x7f7f;  // bits of 3.39e38

// Rounds the finite x to nearest even, but to the largest finite bf16 instead of inf.
constexpr uint16_t finite_bfloat(float x) {
  const uint16_t rounded = float_to_bfloat(x);
  return (rounded & 0x7fff) > kLargestBFloat ? static_cast<uint16_t>(rounded - 1) : rounded;
}

}  // namespace ringdist
