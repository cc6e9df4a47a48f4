// Which elements a warp works on.
#pragma once

#include <cstdint>

#include "cuda/grid/device.h"

namespace ringdist::gpu {

// So many blocks of `block` elements cover `count`.
constexpr int64_t blocks(int64_t count, int block) { return (count + block - 1) / block; }

// Those of block `index` of them: the last may be shorter.
struct BlockAt {
  int64_t begin;
  int count;

  constexpr BlockAt(int64_t index, int64_t all, int block)
      : begin(index * block), count(static_cast<int>(all - begin < block ? all - begin : block)) {}
};

// Calls body with the block; of a whole one the compiler then knows the count, and needs to look at
// no element whether it is there. Not for long blocks, whose elements fill the registers as it is.
template <int kCount, typename Body>
RINGDIST_DEVICE void for_whole_or_tail(int64_t index, int64_t all, const Body& body) {
  constexpr int kMostKnown = 256;
  BlockAt at(index, all, kCount);
  if (kCount <= kMostKnown && at.count == kCount) {
    at.count = kCount;
    body(at);
  } else {
    body(at);
  }
}

}  // namespace ringdist::gpu
