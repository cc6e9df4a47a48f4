// The formats of round16.h: how one value is stored in 16 bits, and read.
#pragma once

#include <bit>
#include <cstdint>

#include "kernel/half.h"

namespace ringdist::rounding16 {

inline constexpr uint32_t kInfinite = 0x7f800000;

// x with a finite magnitude cut to that of the bits `largest`.
[[gnu::always_inline]] constexpr float saturate(float x, uint32_t largest) {
  const auto u = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = u & 0x7fffffff;
  const uint32_t cut = select(magnitude > largest, largest, magnitude);
  return std::bit_cast<float>((u & 0x80000000) | select(magnitude < kInfinite, cut, magnitude));
}

struct Half {
  static constexpr bool kStochastic = false;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t) {
    return float_to_half(saturate(x, std::bit_cast<uint32_t>(65504.0f)));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return half_to_float(x); }
};

struct BFloat {
  static constexpr bool kStochastic = false;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t) {
    return float_to_bfloat(saturate(x, 0x7f7f0000));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return bfloat_to_float(x); }
};

struct StochasticBFloat {
  static constexpr bool kStochastic = true;
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x, uint16_t random) {
    const auto u = std::bit_cast<uint32_t>(saturate(x, 0x7f7f0000));
    const bool nan = (u & 0x7fffffff) > kInfinite;
    return static_cast<uint16_t>(select<uint32_t>(nan, kBFloatNaN, (u + random) >> 16));
  }
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return bfloat_to_float(x); }
};

}  // namespace ringdist::rounding16
