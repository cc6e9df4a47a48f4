// Binomial tree broadcast. After step k at most 2^k ranks have the data, so ceil(log2(size)) steps
// reach all. Ranks are counted from the root. Rank v receives from v without its lowest set bit and
// sends to v + 2^j for every 2^j below that bit. A subtree is thus a run of consecutive ranks, so
// consecutive ranks of a host mostly exchange data inside it.
#include <algorithm>
#include <array>
#include <bit>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

// The parent and the children of a rank in the tree.
struct TreePosition {
  int parent = -1;            // -1 at the root
  std::vector<int> children;  // largest subtree first, because it takes longest
};

// Computes the position of a rank. `v` is the rank as counted from the root.
TreePosition place_of(const Shape& shape) {
  TreePosition out;
  const int v = wrap(shape.rank - shape.root, shape.size);
  int bit = 1;  // v's lowest set bit; at the root, a bit above all ranks
  while (bit < shape.size && (v & bit) == 0) bit <<= 1;
  if (v != 0) out.parent = wrap(v - bit + shape.root, shape.size);
  for (int b = bit >> 1; b > 0; b >>= 1)
    if (v + b < shape.size) out.children.push_back(wrap(v + b + shape.root, shape.size));
  return out;
}

// Only the root's own messages are results; all others pass on bytes that another rank encoded.
Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  TreePosition place = place_of(shape);
  if (place.parent < 0)
    out.steps.push_back(Step::send(all, std::move(place.children), EdgeKind::kResult));
  else if (!place.children.empty())
    out.steps.push_back(Step::relay(all, place.parent, std::move(place.children)));
  else
    out.steps.push_back(Step::recv(
        all, place.parent, place.parent == shape.root ? EdgeKind::kResult : EdgeKind::kRelay));
  return out;
}

// Predicts the cost. The largest subtrees are on other hosts if three things hold: ranks are
// consecutive on hosts, host sizes are powers of two, and the root begins a host. Otherwise some
// smaller subtrees are on other hosts, too.
Duration cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const auto depth_of = [](int ranks) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(ranks) - 1));  // ceil(log2(ranks))
  };
  const int depth = depth_of(at.size);
  const bool whole = !at.spans() || (at.least == at.most && at.crossings == at.hosts &&
                                     std::has_single_bit(static_cast<unsigned>(at.most)));
  int served = 0;  // number of the root's children on other hosts
  for (int bit = 1; bit < at.size; bit *= 2)
    served += !at.same_host(at.root, (at.root + bit) % at.size);
  const int far = std::min(depth, std::max(served, depth_of(at.hosts) + (whole ? 0 : 1)));
  const int near = depth - far;
  const double line = far == 0 ? at.size - 1 : at.most - 1;  // messages through a host's memory
  TransferCost root(question, question.bytes);
  root.one_sided().send(false, far).send(true, near, far == 0 ? 1 : 0).cross(far).share(line);
  // The root of the largest subtree has one child less, and the data that it passes on arrives
  // first.
  TransferCost relay(question, question.bytes);
  const bool inside = far == 0;
  relay.one_sided().receive(inside, 1).send(false, far - 1).cross(far - 1).share(line);
  relay.send(true, inside ? near - 1 : near, inside && near > 1 ? kStoredCopy : 0);
  // While a segment passes from rank to rank, the root sends it to other children.
  const double passing = root.hop(false) - std::max(root.end(false), root.line(false));
  const double last =
      std::max(0, far - 1) * passing + (far > 0 ? near : near - 1) * root.hop(true, kStoredCopy);
  const double hops = far * root.hop(false) +
                      (near > 0 ? root.hop(true) + (near - 1) * root.hop(true, kStoredCopy) : 0);
  const Duration by_root = OpCost(question).load(root).chain(hops).after(last).total();
  if (depth < 2) return by_root;
  return std::max(by_root, OpCost(question).load(relay).chain(hops).after(last).total());
}

constexpr std::array kImpls{CollectiveImpl{Collective::kBroadcast, broadcast, whole}};

}  // namespace

Algorithm tree_algorithm() {
  return {.name = "tree",
          .description = "binomial tree; ceil(log2(size)) steps from any root",
          .rank_ordered = false,
          .impls = kImpls,
          .cost = cost};
}

}  // namespace ringdist
