// Which elements a warp works on.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"

namespace ringdist::gpu {

// So many blocks of `block` elements cover `count`.
constexpr int64_t blocks(int64_t count, int block) { return (count + block - 1) / block; }

// Those of a block of `count` elements.
struct BlockAt {
  int64_t begin;
  int count;

  // Of whole blocks: the i-th after it.
  constexpr BlockAt next(int i) const { return {begin + int64_t{i} * count, count}; }
};

// Calls body.template operator()<blocks>(first) for batch `index` of a call of `all` elements: all
// of its blocks at once if they are whole, and then the compiler knows their count, and needs to
// look at no element whether it is there; else one by one.
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
