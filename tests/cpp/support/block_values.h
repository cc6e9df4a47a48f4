// Values for tests of codecs that have a scale per block.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>

#include "support/floats.h"

namespace ringdist {

// Returns `count` values in blocks of `block` elements. The magnitude differs from block to block,
// and some blocks are zero, tiny, huge or not finite.
inline Floats block_values(size_t count, size_t block, std::mt19937& random) {
  std::normal_distribution<float> normal;
  Floats out(count);
  for (size_t at = 0; at < count; at += block) {
    const int exponent = static_cast<int>(random() % 280) - 150;
    const size_t end = std::min(count, at + block);
    for (size_t i = at; i < end; ++i) out[i] = std::ldexp(normal(random), exponent);
    if (random() % 8 == 0) std::fill_n(out.begin() + static_cast<ptrdiff_t>(at), end - at, 0.0f);
    if (random() % 8 == 0)
      out[at + random() % (end - at)] = std::bit_cast<float>(static_cast<uint32_t>(random()));
  }
  return out;
}

}  // namespace ringdist
