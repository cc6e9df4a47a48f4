// Format of a quantized block: the codes, the 16-bit scale and the rounding. All functions are
// pure; any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernel/half.h"

namespace ringdist {

// Code of one element. Int8 and fp8 scale by the largest magnitude; int4 and int2 have a signed
// least-squares scale (kernel/quantize.h).
enum class BlockFormat : uint8_t { kFp8E4M3, kFp8E5M2, kInt8, kInt4, kInt2 };

inline constexpr size_t kQuantizeBlock =
    128;  // elements that share a scale; the last block may be shorter

// Stochastic rounding: a value is rounded up with a probability equal to its fraction. The random
// bits of element i are a hash of (key, i), so the same key gives the same bits again. `key` is not
// read if `on` is false.
struct Stochastic {
  bool on = false;
  uint64_t key = 0;
};

// Wire format of a block's scale: a bfloat16, except for patterns with an exponent field of 0.
// There, m = 1..127 means 2^(m - 150) instead of a subnormal, so that a block of the smallest
// floats also has a scale. A NaN marks a poisoned block, and all of its values decode to NaN.
inline constexpr uint16_t kPoisonScale = kBFloatNaN;

// Lower limit of a block's largest magnitude for normal scales. From here up the scale is a normal
// bfloat16 for every codec, and code * scale is exact in fp32.
inline constexpr float kSmallestScaled = 0x1p-100f;

// Decodes a scale from the wire. Every pattern has a value; inf and NaN decode as such.
constexpr float scale_value(uint16_t wire) {
  const uint32_t sign = static_cast<uint32_t>(wire & 0x8000) << 16;
  const uint32_t m = wire & 0x7f;
  if ((wire & 0x7f80) != 0 || m == 0) return bfloat_to_float(wire);
  const uint32_t magnitude = m <= 23 ? 1u << (m - 1) : (m - 23) << 23;
  return std::bit_cast<float>(sign | magnitude);
}

// Returns the largest scale with which a code of magnitude `top` still decodes to a finite value.
// Cutting the low bits rounds it down, so the product does not overflow.
constexpr uint16_t largest_scale(float top) {
  const float quotient = std::numeric_limits<float>::max() / top;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(quotient) >> 16);
}

// Returns the scale that maps `largest` (finite, >= kSmallestScaled) to a code of magnitude `top`
// at most. It is rounded up. At the upper end of fp32, where `top` would decode to inf, it is
// largest_scale().
constexpr uint16_t scale_up(float largest, float top) {
  const uint32_t up = (std::bit_cast<uint32_t>(largest / top) + 0xffff) >> 16;
  return static_cast<uint16_t>(std::min<uint32_t>(up, largest_scale(top)));
}

// Returns the wire scale nearest to `scale`, which is finite and normal, limited by
// largest_scale(top).
constexpr uint16_t scale_nearest(float scale, float top) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded = (magnitude + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t sign = (bits >> 16) & 0x8000;
  return static_cast<uint16_t>(std::min<uint32_t>(rounded, largest_scale(top)) | sign);
}

// Returns the scale of a tiny block: its largest magnitude (given by its bits) is positive but
// below kSmallestScaled. The scale is the power of two that maps it to a code of `bits` bits. Codes
// are then cut toward zero, which brings each value nearer to zero, and the largest strictly so.
constexpr uint16_t tiny_scale(uint32_t largest, int bits) {
  const int exponent = largest >= 1u << 23 ? static_cast<int>(largest >> 23) - 127
                                           : 31 - std::countl_zero(largest) - 149;
  return static_cast<uint16_t>(std::max(exponent - (bits - 1), -149) + 150);
}

// Returns x divided by a tiny scale, rounded toward zero. `scale` is a result of tiny_scale() for a
// block that contains x.
constexpr int tiny_code(float x, uint16_t scale) {
  // Two steps, because the reciprocal of the smallest scales is not a float.
  const float rest = std::bit_cast<float>(static_cast<uint32_t>(127 + 50 - scale) << 23);
  return static_cast<int>(x * 0x1p100f * rest);
}

}  // namespace ringdist
