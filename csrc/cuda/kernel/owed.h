// Error feedback on a device: kernel/residual_span.h without its count.
#pragma once

#include <cstdint>

namespace ringdist::gpu {

struct Owed {
  const float* from = nullptr;  // null: none
  float* to = nullptr;          // may be from

  constexpr bool empty() const { return from == nullptr; }
  constexpr Owed at(int64_t begin) const {
    return empty() ? *this : Owed{from + begin, to + begin};
  }
};

}  // namespace ringdist::gpu
