// Conversions between float and the two 8-bit formats of the Open Compute Project's "OCP 8-bit
// Floating Point Specification" (2023). They use integer operations, selects and additions of
// normal floats, like kernel/half.h. Rounding is to nearest, ties to even. Too large values become
// the largest finite value. NaN is not a valid input.
#pragma once

#include <bit>
#include <cstdint>

#include "kernel/half.h"

namespace ringdist {

// One format. `kTop` is the code of the largest finite value. Codes above it decode as their bits
// suggest, as if inf and NaN did not exist; encoding never produces them.
template <int kExponentBits, int kMantissaBits, uint8_t kTop>
struct Fp8Format {
  static constexpr int kBias = (1 << (kExponentBits - 1)) - 1;
  static constexpr int kDropped = 23 - kMantissaBits;       // mantissa bits of fp32 that are lost
  static constexpr uint8_t kOne = kBias << kMantissaBits;   // code of 1.0
  static constexpr uint32_t kRebias = (127 - kBias) << 23;  // added to a code's bits for fp32
  static constexpr uint32_t kFirstNormal = kRebias + (1 << 23);  // fp32 bits of the smallest normal
  static constexpr float kLargest =
      std::bit_cast<float>((static_cast<uint32_t>(kTop) << kDropped) + kRebias);

  // Encodes a float. Subnormals are rounded by a float addition, normal numbers by an integer one.
  // Both are computed, and a select takes one.
  [[gnu::always_inline]] static constexpr uint8_t narrow(float x) {
    // A float that has a subnormal's unit as its last mantissa bit. Adding it rounds to multiples
    // of that unit.
    constexpr uint32_t kUnits = kRebias + ((24 - kMantissaBits) << 23);
    const auto u = std::bit_cast<uint32_t>(x);
    const uint32_t magnitude = u & 0x7fffffff;
    const uint32_t odd = (magnitude >> kDropped) & 1;
    const uint32_t normal = (magnitude - kRebias + (1u << (kDropped - 1)) - 1 + odd) >> kDropped;
    const uint32_t bounded = select(magnitude < kFirstNormal, magnitude, 0u);
    const uint32_t small =
        std::bit_cast<uint32_t>(std::bit_cast<float>(bounded) + std::bit_cast<float>(kUnits)) -
        kUnits;
    uint32_t out = select(magnitude < kFirstNormal, small, normal);
    out = select<uint32_t>(out > kTop, kTop, out);
    return static_cast<uint8_t>(out | ((u >> 24) & 0x80));
  }

  // Decodes a code.
  [[gnu::always_inline]] static constexpr float widen(uint8_t code) {
    const uint32_t magnitude = static_cast<uint32_t>(code & 0x7f) << kDropped;
    const uint32_t normal = magnitude + kRebias;
    // For m subnormal units, it builds the first normal number + m units and subtracts the first
    // normal number.
    const float small =
        std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(kFirstNormal);
    const uint32_t out = select(magnitude < (1u << 23), std::bit_cast<uint32_t>(small), normal);
    return std::bit_cast<float>(out | static_cast<uint32_t>(code & 0x80) << 24);
  }
};

using E4M3 = Fp8Format<4, 3, 0x7e>;  // up to 448
using E5M2 = Fp8Format<5, 2, 0x7b>;  // up to 57344

}  // namespace ringdist
