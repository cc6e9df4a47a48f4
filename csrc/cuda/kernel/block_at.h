// Computes the elements that a warp works on.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist::gpu {

// Returns the number of blocks of `block` elements that cover `count` elements.
constexpr int64_t blocks(int64_t count, int block) { return (count + block - 1) / block; }

// Position of one block of `count` elements.
struct BlockAt {
  int64_t begin;  // first element in the call
  int count;

  // Returns the i-th block after this one. All blocks must be whole.
  constexpr BlockAt next(int i) const { return {begin + int64_t{i} * count, count}; }
};

// Calls body.template operator()<blocks>(first) for batch `index` of a call with `all` elements. If
// all blocks of the batch are whole, calls it once with their number. The compiler can then unroll,
// and no bounds checks are needed. Otherwise calls it for each block.
template <int kCount, int kBatch, typename Body>
RINGDIST_DEVICE void for_batch(int64_t index, int64_t all, const Body& body) {
  const int64_t begin = index * (kBatch * kCount);
  if constexpr (kBatch > 1) {
    if (begin + kBatch * kCount <= all)
      return body.template operator()<kBatch>(BlockAt{begin, kCount});
  }
  const int64_t end = begin + kBatch * kCount;
  for (int64_t at = begin; at < end && at < all; at += kCount)
    body.template operator()<1>(
        BlockAt{at, static_cast<int>(all - at < kCount ? all - at : kCount)});
}

}  // namespace ringdist::gpu
