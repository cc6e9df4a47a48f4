#include "negotiation/order/spanning_tree.h"

#include <algorithm>

namespace ringdist {
namespace {

// Adds those to both: `ranks` as a heap whose first one is the root.
void link(const std::vector<int>& ranks, int rank, SpanningTree& out) {
  const auto found = std::ranges::find(ranks, rank);
  if (found == ranks.end()) return;
  const auto at = static_cast<size_t>(found - ranks.begin());
  const size_t first = at * SpanningTree::kChildren + 1;
  for (size_t child = first; child < std::min(first + SpanningTree::kChildren, ranks.size());
       ++child)
    out.children.push_back(ranks[child]);
  if (at > 0) out.parent = ranks[(at - 1) / SpanningTree::kChildren];
}

}  // namespace

SpanningTree SpanningTree::of(const Topology& topology, int rank) {
  std::vector<int> first_of_hosts;
  for (const auto& host : topology.hosts) first_of_hosts.push_back(host.front());
  SpanningTree out;
  link(topology.hosts[topology.host_of[rank]], rank, out);
  link(first_of_hosts, rank, out);
  return out;
}

}  // namespace ringdist
