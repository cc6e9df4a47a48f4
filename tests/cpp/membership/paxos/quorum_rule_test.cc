#include "membership/paxos/quorum_rule.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringdist {
namespace {

RankSet set_of(int size, const std::vector<int>& ranks) {
  RankSet out(size);
  for (const int rank : ranks) out.add(rank);
  return out;
}

TEST(QuorumRule, AMajorityOfAllIsAQuorum) {
  const QuorumRule five(5);
  const RankSet nobody(5);
  EXPECT_FALSE(five.is_quorum(set_of(5, {0, 4}), false, nobody));
  EXPECT_TRUE(five.is_quorum(set_of(5, {0, 3, 4}), false, nobody));
  EXPECT_FALSE(five.is_quorum(set_of(5, {0, 4}), true, nobody)) << "of odd numbers nothing is half";
}

TEST(QuorumRule, HalfIsOneWithTheStore) {
  const QuorumRule four(4);
  const RankSet nobody(4);
  EXPECT_FALSE(four.is_quorum(set_of(4, {0, 1}), false, nobody));
  EXPECT_TRUE(four.is_quorum(set_of(4, {0, 1}), true, nobody));
  EXPECT_FALSE(four.is_quorum(set_of(4, {0}), true, nobody));
}

TEST(QuorumRule, AllTheLivingAreOneWhereTheRestIsReportedDead) {
  const QuorumRule five(5);
  EXPECT_TRUE(five.is_quorum(set_of(5, {2}), false, set_of(5, {0, 1, 3, 4})));
  EXPECT_FALSE(five.is_quorum(set_of(5, {2}), false, set_of(5, {0, 1, 3}))) << "rank 4 may live";
  EXPECT_FALSE(five.is_quorum(set_of(5, {2, 3}), false, set_of(5, {0})))
      << "a vote of the dead counts as one";
}

// Any two sets that may decide by votes share a voter. The store counts as one.
TEST(QuorumRule, MajoritiesMeet) {
  for (int size = 1; size <= 8; ++size) {
    const QuorumRule all(size);
    const RankSet nobody(size);
    const int voters = size + 1;
    const auto decides = [&](unsigned votes) {
      RankSet set(size);
      for (int rank = 0; rank < size; ++rank)
        if ((votes >> rank & 1U) != 0) set.add(rank);
      return all.is_majority(set, (votes >> size & 1U) != 0);
    };
    for (unsigned one = 0; one < 1U << voters; ++one)
      for (unsigned other = 0; other < one; ++other)
        EXPECT_TRUE((one & other) != 0 || !decides(one) || !decides(other)) << size << " members";
  }
}

}  // namespace
}  // namespace ringdist
