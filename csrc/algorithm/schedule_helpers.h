// Helpers that the algorithm files share: ranks on a circle, and the ranges of shards and parts.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist {

// Returns `rank` on a circle of `size`. `rank` may be negative or several rounds too large.
inline int wrap(int rank, int size) {
  const int r = rank % size;
  return r < 0 ? r + size : r;
}

// Functions for CollectiveImpl::longest. They return the longest of even_shards(count, shards), the
// whole tensor, and the sum of all parts as an upper bound.
inline int64_t longest_shard(int64_t count, int shards) { return (count + shards - 1) / shards; }
inline int64_t whole(int64_t count, int) { return count; }
inline int64_t all_parts(int64_t count, int parts) { return count * parts; }

// Returns the i-th shard or part of `buffer`. `bounds` is a result of even_shards(), shards_of(),
// input_bounds() or output_bounds().
inline Range part(BufferId buffer, const std::vector<int64_t>& bounds, int i) {
  const auto at = static_cast<size_t>(i);
  return {buffer, bounds[at], bounds[at + 1] - bounds[at]};
}

// Returns all other ranks, beginning with the next, so that not all ranks start with the same peer.
inline std::vector<int> peers_after(const Shape& shape) {
  std::vector<int> out;
  for (int k = 1; k < shape.size; ++k) out.push_back(wrap(shape.rank + k, shape.size));
  return out;
}

// Makes a reduce of the data that all others send to this rank, with `own` at its place in rank
// order. All ranks thus add in the same order, and the sum is final.
inline Step reduce_in_rank_order(const Shape& shape, Range result, Range own) {
  std::vector<Source> sources;
  for (int r = 0; r < shape.size; ++r)
    sources.push_back(r == shape.rank ? Source{-1, own} : Source{r, result});
  return Step::reduce(result, std::move(sources), /*finish=*/true);
}

// Makes the reduce-scatter schedule of a group of one rank.
inline Schedule copy_of_own_part(const Shape& shape) {
  const Range mine = part(BufferId::kInput, input_bounds(shape), 0);
  Schedule out;
  out.steps.push_back(Step::copy({BufferId::kOutput, 0, mine.count}, mine));
  return out;
}

}  // namespace ringdist
