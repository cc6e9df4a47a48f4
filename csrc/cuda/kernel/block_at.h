// Which elements a warp works on.
#pragma once

#include <cstdint>

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

}  // namespace ringdist::gpu
