// The random bits of one element, as loops on the host draw them for four at a time.
#pragma once

#include <cstdint>

#include "kernel/counter.h"

namespace ringdist::gpu {

// 16 of them.
constexpr uint32_t random_bits(uint64_t key, uint64_t element) {
  return static_cast<uint32_t>(random_at(key, element / 4) >> (element % 4 * 16)) & 0xffff;
}

}  // namespace ringdist::gpu
