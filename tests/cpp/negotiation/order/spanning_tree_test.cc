#include <gtest/gtest.h>

#include <algorithm>

#include "negotiation/order/negotiator.h"
#include "support/topologies.h"

namespace ringdist {
namespace {

void expect_a_tree(const Topology& topology) {
  const int size = static_cast<int>(topology.host_of.size());
  std::vector<SpanningTree> tree;
  for (int rank = 0; rank < size; ++rank) tree.push_back(SpanningTree::of(topology, rank));
  size_t between_hosts = 0;
  for (int rank = 0; rank < size; ++rank) {
    EXPECT_LE(tree[rank].children.size(), 2u * SpanningTree::kChildren);
    for (const int child : tree[rank].children) EXPECT_EQ(tree[child].parent, rank);
    if (rank == 0) {
      EXPECT_EQ(tree[rank].parent, -1);
      continue;
    }
    const int parent = tree[rank].parent;
    EXPECT_EQ(std::ranges::count(tree[parent].children, rank), 1);
    between_hosts += topology.same_host(parent, rank) ? 0 : 1;
    int steps = 0;
    for (int at = rank; at != 0 && steps <= size; at = tree[at].parent) ++steps;
    EXPECT_LE(steps, size);  // no cycle
  }
  EXPECT_EQ(between_hosts, topology.hosts.size() - 1);
}

TEST(SpanningTree, ReachesAllAndCrossesTheNetworkOncePerHost) {
  for (int size = 1; size <= 70; ++size)
    for (const int per_host : {1, 2, 3, 8, 70}) expect_a_tree(test::runs_of_ranks(size, per_host));
}

TEST(SpanningTree, IsAlsoOneWhereRanksOfHostsAlternate) {
  expect_a_tree(Topology::from_hosts({{0, 2, 4, 6}, {1, 3, 5}}, 7));
}

}  // namespace
}  // namespace ringdist
