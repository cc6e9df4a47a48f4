// How quantize() codes a block, and how it may round.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringdist {

enum class BlockFormat : uint8_t { kFp8E4M3, kFp8E5M2, kInt8, kInt4, kInt2 };

inline constexpr size_t kQuantizeBlock = 128;

// Rounding that goes up with the probability of the fraction. The random bits of element i are a
// hash of (key, i): the same key repeats them.
struct Stochastic {
  bool on = false;
  uint64_t key = 0;
};

}  // namespace ringdist
