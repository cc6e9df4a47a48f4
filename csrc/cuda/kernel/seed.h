// Random numbers, as codec/codec.h and the codecs define them. There are the seed of a call, the
// seed of a chunk behind a rotation, and the random bits of an element.
#pragma once

#include <cstdint>

#include "kernel/counter_rng.h"

namespace ringdist::gpu {

// Seed of a call or chunk.
struct Seed {
  uint64_t shared = 0;
  uint64_t own = 0;

  // Returns the seed of a chunk behind a rotation.
  constexpr Seed of_chunk(uint64_t number) const {
    return {random_at(shared, number), random_at(own, number)};
  }
  // Returns the key for stochastic rounding.
  constexpr uint64_t key() const { return random_at(shared, own); }
};

// Returns 16 random bits for an element. Loops on the host draw them for four elements at a time.
constexpr uint32_t random_bits(uint64_t key, uint64_t element) {
  return static_cast<uint32_t>(random_at(key, element / 4) >> (element % 4 * 16)) & 0xffff;
}

}  // namespace ringdist::gpu
