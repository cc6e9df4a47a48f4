// Error feedback on a device: kernel/residual_span.h without its count.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist::gpu {

struct ResidualPointers {
  const float* from = nullptr;  // null: none
  float* to = nullptr;          // may be from
  // Null, or on the device: 0 if the values are all zero. Nothing is then paid, and what is owed
  // stays.
  const uint32_t* awake = nullptr;

  constexpr bool empty() const { return from == nullptr; }
  RINGDIST_DEVICE bool applies() const { return !empty() && (awake == nullptr || *awake != 0); }
  constexpr ResidualPointers at(int64_t begin) const {
    return empty() ? *this : ResidualPointers{from + begin, to + begin, awake};
  }
};

}  // namespace ringdist::gpu
