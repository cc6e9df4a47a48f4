#include "cuda/nccl/split_comm.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace ringdist::gpu {
namespace {

// Returns true if the keys are 0 to size - 1, each once.
bool are_all(const std::multiset<int32_t>& keys, int32_t size) {
  int32_t next = 0;
  return std::ranges::all_of(keys, [&](int32_t key) { return key == next++; }) && next == size;
}

}  // namespace

SplitPart part_of(int own, int of, const std::vector<int>& ranks) {
  const auto at = std::ranges::find(ranks, own);
  if (at == ranks.end()) return {of + own, 0, 1};
  return {std::ranges::min(ranks), static_cast<int32_t>(at - ranks.begin()),
          static_cast<int32_t>(ranks.size())};
}

Error check_parts(const std::vector<SplitPart>& parts) {
  std::map<int32_t, std::multiset<int32_t>> keys;  // by color
  for (const SplitPart& part : parts) keys[part.color].insert(part.key);
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    const auto [color, key, size] = parts[rank];
    const auto& there = keys[color];
    if (are_all(there, size)) continue;
    return Error(ErrorKind::kInvalidArgument,
                 "ringdist: split_group: ranks disagree on the parts: rank " +
                     std::to_string(rank) + " is in one of " + std::to_string(size) +
                     " ranks, the lowest being " + std::to_string(color) +
                     ", but not each of those has called the same: " +
                     std::to_string(there.size()) + " name one with this rank");
  }
  return {};
}

}  // namespace ringdist::gpu
