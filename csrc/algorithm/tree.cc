// Binomial tree broadcast: after step k at most 2^k ranks have the data, so ceil(log2(size)) steps
// reach all. Counted from the root, rank v hears from v without its lowest set bit and serves
// v + 2^j for every 2^j below that bit: a subtree is a run of consecutive ranks, so that ranks of
// one host, numbered one after another, hear mostly from each other.
#include <array>

#include "algorithm/ranges.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

struct Place {
  int parent = -1;            // -1 at the root
  std::vector<int> children;  // largest subtree first: it takes longest
};

Place place_of(const Shape& shape) {
  Place out;
  const int v = wrap(shape.rank - shape.root, shape.size);
  int bit = 1;  // v's lowest set bit; at the root, a bit above all ranks
  while (bit < shape.size && (v & bit) == 0) bit <<= 1;
  if (v != 0) out.parent = wrap(v - bit + shape.root, shape.size);
  for (int b = bit >> 1; b > 0; b >>= 1)
    if (v + b < shape.size) out.children.push_back(wrap(v + b + shape.root, shape.size));
  return out;
}

Schedule build(Collective kind, const Shape& shape) {
  if (kind != Collective::kBroadcast) unsupported("tree", kind);
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  Place place = place_of(shape);
  if (place.parent < 0)
    out.steps.push_back(Step::send(all, std::move(place.children), EdgeMark::kResult));
  else if (!place.children.empty())
    out.steps.push_back(Step::relay(all, place.parent, std::move(place.children)));
  else
    out.steps.push_back(Step::recv(
        all, place.parent, place.parent == shape.root ? EdgeMark::kResult : EdgeMark::kRelay));
  return out;
}

constexpr std::array kCollectives{Collective::kBroadcast};

}  // namespace

Algorithm tree_algorithm() {
  return {.name = "tree",
          .description = "binomial tree; ceil(log2(size)) steps from any root",
          .rank_ordered = false,
          .collectives = kCollectives,
          .best_for = kCollectives,
          .build = build,
          .longest_range = [](Collective, int64_t count, int) { return count; }};
}

}  // namespace ringdist
