#include "base/topology.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

TEST(Topology, OneHost) {
  const Topology topology = Topology::one_host(3);
  EXPECT_EQ(topology.hosts, (std::vector<std::vector<int>>{{0, 1, 2}}));
  EXPECT_TRUE(topology.same_host(0, 2));
}

// Ranks may discover the hosts in different orders, and must still get the same topology.
TEST(Topology, DoesNotDependOnTheOrderOfDiscovery) {
  const Topology a = Topology::from_hosts({{1, 4}, {0, 3}, {2}}, 5);
  const Topology b = Topology::from_hosts({{2}, {3, 0}, {4, 1}}, 5);
  EXPECT_EQ(a.hosts, (std::vector<std::vector<int>>{{0, 3}, {1, 4}, {2}}));
  EXPECT_EQ(a.host_of, (std::vector<int>{0, 1, 2, 0, 1}));
  EXPECT_EQ(a.hosts, b.hosts);
  EXPECT_EQ(a.host_of, b.host_of);
  EXPECT_TRUE(a.same_host(1, 4));
  EXPECT_FALSE(a.same_host(0, 4));
}

TEST(Topology, ColumnsAreAsManyAsRanksOfAHostButOfVeryUnequalOnes) {
  EXPECT_EQ(Topology::from_hosts({{0, 1}, {2, 3}}, 4).columns(), 2);
  EXPECT_EQ(Topology::from_hosts({{0}, {1, 2}, {3, 4, 5}}, 6).columns(), 3);
  EXPECT_EQ(Topology::from_hosts({{0, 1, 2, 3, 4, 5, 6}, {7}, {8}}, 9).columns(), 6);
  EXPECT_EQ(Topology().columns(), 0);
}

}  // namespace
}  // namespace ringdist
