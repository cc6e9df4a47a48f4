// bf16 for values that are finite and must stay so.
#pragma once

#include "kernel/half.h"

namespace ringdist {

inline constexpr uint16_t kLargestBFloat = 0x7f7f;  // bits of 3.39e38

// x, finite, rounded to nearest even, but no further from zero than the largest finite bf16.
constexpr uint16_t finite_bfloat(float x) {
  const uint16_t rounded = float_to_bfloat(x);
  return (rounded & 0x7fff) > kLargestBFloat ? static_cast<uint16_t>(rounded - 1) : rounded;
}

}  // namespace ringdist
