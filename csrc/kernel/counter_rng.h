// Counter-based random numbers: each is a function of a key and a counter. So it can be computed
// without its predecessors, on any machine and in any order. It is the output function of
// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014). Not for
// secrets.
#pragma once

#include <cstdint>

namespace ringdist {

// Returns the random number `counter` of the sequence `key`. It is often a key itself: of a block,
// a chunk or a rank.
constexpr uint64_t random_at(uint64_t key, uint64_t counter) {
  uint64_t z = key + (counter + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

}  // namespace ringdist
