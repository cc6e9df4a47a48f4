// What random numbers come from, as codec/codec.h and the codecs have it: the seed of a call, that
// of a chunk of a rotated one, and the bits of one element.
#pragma once

#include <cstdint>

#include "kernel/counter_rng.h"

namespace ringdist::gpu {

struct Seed {
  uint64_t shared = 0;
  uint64_t own = 0;

  // Of a chunk behind a rotation.
  constexpr Seed of_chunk(uint64_t number) const {
    return {random_at(shared, number), random_at(own, number)};
  }
  // Of stochastic rounding.
  constexpr uint64_t key() const { return random_at(shared, own); }
};

// Those that loops on the host draw for four elements at a time: 16 of them.
constexpr uint32_t random_bits(uint64_t key, uint64_t element) {
  return static_cast<uint32_t>(random_at(key, element / 4) >> (element % 4 * 16)) & 0xffff;
}

}  // namespace ringdist::gpu
