// Ranks of a group that may represent all others in a simulation.
#include "simulate/rank_symmetry.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string_view>
#include <vector>

#include "support/topologies.h"

namespace ringdist {
namespace {

int alike_ranks(std::string_view algorithm, Collective kind, int size, int per_host, int root = 0,
                bool whole_hosts = true) {
  Shape shape;
  shape.size = size;
  shape.root = root;
  shape.count = 1000;  // shards of two lengths
  return symmetry_period(*find_algorithm(algorithm), kind, shape,
                         test::runs_of_ranks(size, per_host), whole_hosts);
}

TEST(RankSymmetryCases, IsOfWholeHosts) {
  EXPECT_EQ(alike_ranks("ring", Collective::kAllreduce, 16, 4), 4);
  EXPECT_EQ(alike_ranks("ring", Collective::kAllreduce, 16, 1), 1);
  EXPECT_EQ(alike_ranks("ring", Collective::kAllreduce, 16, 16), 16);
  EXPECT_EQ(alike_ranks("ring", Collective::kAllreduce, 16, 16, 0, /*whole_hosts=*/false), 1);
}

TEST(RankSymmetryCases, EndsWhereALayoutIsUneven) {
  EXPECT_EQ(alike_ranks("ring", Collective::kAllreduce, 15, 4), 15);
}

TEST(RankSymmetryCases, TheOrderOfASumDoesNotMatter) {
  EXPECT_EQ(alike_ranks("direct", Collective::kAllreduce, 16, 4), 4);
}

TEST(RankSymmetryCases, ARootIsLikeNoOther) {
  for (const int root : {0, 5, 7, 15}) {
    EXPECT_EQ(alike_ranks("direct", Collective::kReduce, 16, 1, root), 16);
    EXPECT_EQ(alike_ranks("tree", Collective::kBroadcast, 16, 4, root), 16);
  }
}

TEST(RankSymmetryCases, OfExchanges) {
  EXPECT_EQ(alike_ranks("recursive_doubling", Collective::kAllreduce, 16, 4), 8);
  EXPECT_EQ(alike_ranks("recursive_doubling", Collective::kAllreduce, 12, 1), 12);
  EXPECT_EQ(alike_ranks("dissemination", Collective::kBarrier, 16, 4), 4);
}

TEST(RankSymmetryCases, LooksAtPeersCountsAndKinds) {
  const Range ten{BufferId::kOutput, 0, 10};
  const auto with = [](Step step) {
    Schedule out;
    out.steps.push_back(std::move(step));
    return out;
  };
  const Schedule one = with(Step::send(ten, {3}, EdgeKind::kResult));
  const auto send = [&](int64_t offset, int64_t count, int to) {
    return with(Step::send({BufferId::kOutput, offset, count}, {to}, EdgeKind::kResult));
  };
  EXPECT_TRUE(are_symmetric(one, send(70, 11, 1), 2, 4));
  EXPECT_FALSE(are_symmetric(one, send(0, 12, 1), 2, 4));
  EXPECT_FALSE(are_symmetric(one, send(0, 10, 2), 2, 4));
  EXPECT_FALSE(are_symmetric(one, with(Step::recv(ten, 1, EdgeKind::kResult)), 2, 4));
  EXPECT_FALSE(are_symmetric(one, Schedule(), 2, 4));
}

}  // namespace
}  // namespace ringdist
