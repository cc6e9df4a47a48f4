// How quantize() codes a block, and how it may round.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kernel/half.h"

namespace ringdist {

enum class BlockFormat : uint8_t { kFp8E4M3, kFp8E5M2, kInt8, kInt4, kInt2 };

inline constexpr size_t kQuantizeBlock = 128;

// Rounding that goes up with the probability of the fraction. The random bits of element i are a
// hash of (key, i): the same key repeats them.
struct Stochastic {
  bool on = false;
  uint64_t key = 0;
};

// The 16 bits in front of a block that scale its codes: bfloat16, but for patterns whose exponent
// field is 0. There m = 1..127 stands for 2^(m - 150) instead of a subnormal, so that a block of
// the smallest floats has a scale as well. NaN marks a poisoned block: all its values decode to
// NaN.
inline constexpr uint16_t kPoisonScale = kBFloatNaN;

// From here up a largest magnitude gives a scale that is a normal bfloat16, for every codec, and
// code * scale is exact in fp32.
inline constexpr float kSmallestScaled = 0x1p-100f;

constexpr float scale_value(uint16_t wire) {
  const uint32_t sign = static_cast<uint32_t>(wire & 0x8000) << 16;
  const uint32_t m = wire & 0x7f;
  if ((wire & 0x7f80) != 0 || m == 0) return bfloat_to_float(wire);
  const uint32_t magnitude = m <= 23 ? 1u << (m - 1) : (m - 23) << 23;
  return std::bit_cast<float>(sign | magnitude);
}

// The largest scale with which a code of magnitude `top` still decodes to a finite value.
constexpr uint16_t largest_scale(float top) {
  const float quotient = std::numeric_limits<float>::max() / top;
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(quotient) >> 16);
}

// The scale by which `largest` (finite, >= kSmallestScaled) takes a code of magnitude `top` at
// most: rounded up; at the upper end of fp32, where that would decode to inf, largest_scale().
constexpr uint16_t scale_up(float largest, float top) {
  const uint32_t up = (std::bit_cast<uint32_t>(largest / top) + 0xffff) >> 16;
  return static_cast<uint16_t>(std::min<uint32_t>(up, largest_scale(top)));
}

// The scale nearest to `scale`, which is finite and normal, within largest_scale(top).
constexpr uint16_t scale_nearest(float scale, float top) {
  const auto bits = std::bit_cast<uint32_t>(scale);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t rounded = (magnitude + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t sign = (bits >> 16) & 0x8000;
  return static_cast<uint16_t>(std::min<uint32_t>(rounded, largest_scale(top)) | sign);
}

// For a block whose largest magnitude (given by its bits) is positive but below kSmallestScaled:
// the power of two by which it takes a code of `bits` bits. Codes are then cut toward zero, which
// brings each value nearer to zero and the largest strictly so.
constexpr uint16_t tiny_scale(uint32_t largest, int bits) {
  const int exponent = largest >= 1u << 23 ? static_cast<int>(largest >> 23) - 127
                                           : 31 - std::countl_zero(largest) - 149;
  return static_cast<uint16_t>(std::max(exponent - (bits - 1), -149) + 150);
}

// x divided by such a scale, toward zero.
constexpr int tiny_code(float x, uint16_t scale) {
  // In two steps, since the reciprocal of the smallest scales is no float.
  const float rest = std::bit_cast<float>(static_cast<uint32_t>(127 + 50 - scale) << 23);
  return static_cast<int>(x * 0x1p100f * rest);
}

}  // namespace ringdist
