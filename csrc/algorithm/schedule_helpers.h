// What the algorithm files share: ranks on a circle and the ranges of shards and parts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist {

// `rank` on a circle of `size`; `rank` may lie up to any number of turns outside.
inline int wrap(int rank, int size) {
  const int r = rank % size;
  return r < 0 ? r + size : r;
}

// CollectiveImpl::longest: the longest of even_shards(count, shards), the whole, or no more than
// all parts.
inline int64_t longest_shard(int64_t count, int shards) { return (count + shards - 1) / shards; }
inline int64_t whole(int64_t count, int) { return count; }
inline int64_t all_parts(int64_t count, int parts) { return count * parts; }

// The i-th shard or part of `buffer`; `bounds` as even_shards and input_bounds return them.
inline Range part(BufferId buffer, const std::vector<int64_t>& bounds, int i) {
  const auto at = static_cast<size_t>(i);
  return {buffer, bounds[at], bounds[at + 1] - bounds[at]};
}

// All other ranks, beginning with the next: not all ranks start with the same peer.
inline std::vector<int> peers_after(const Shape& shape) {
  std::vector<int> out;
  for (int k = 1; k < shape.size; ++k) out.push_back(wrap(shape.rank + k, shape.size));
  return out;
}

// Reduces what all others send to this rank, and `own` at its place among them.
inline Step reduce_in_rank_order(const Shape& shape, Range result, Range own) {
  std::vector<Source> sources;
  for (int r = 0; r < shape.size; ++r)
    sources.push_back(r == shape.rank ? Source{-1, own} : Source{r, result});
  return Step::reduce(result, std::move(sources), /*finish=*/true);
}

// A reduce-scatter of one rank.
inline Schedule copy_of_own_part(const Shape& shape) {
  const Range mine = part(BufferId::kInput, input_bounds(shape), 0);
  Schedule out;
  out.steps.push_back(Step::copy({BufferId::kOutput, 0, mine.count}, mine));
  return out;
}

}  // namespace ringdist
