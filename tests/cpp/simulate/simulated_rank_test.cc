// Execution of steps by one rank of a simulation.
#include "simulate/simulated_rank.h"

#include <gtest/gtest.h>

#include <vector>

namespace ringdist {
namespace {

Range walked_range(int64_t offset, int64_t count) { return {BufferId::kOutput, offset, count}; }

// Returns the segments that the rank sends and consumes: 100 * (step + 1) + segment, negative if
// consumed.
std::vector<int64_t> work_of(SimulatedRank& rank) {
  std::vector<SimulatedRank::Done> done;
  while (rank.work(done)) continue;
  std::vector<int64_t> out;
  for (const auto& one : done)
    out.push_back((one.sent ? 1 : -1) * (100 * (one.at + 1) + one.segment));
  return out;
}

TEST(SimulatedRank, RelaysWhatHasCome) {
  Schedule schedule;
  schedule.steps = {Step::relay(walked_range(0, 25), 1, {2, 3})};
  SimulatedRank rank(*compile(schedule, 10), 8);
  EXPECT_TRUE(work_of(rank).empty());
  rank.arrived(rank.find_in(1, 0));
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{-100, 100, 200}));
  rank.arrived(0);
  rank.arrived(0);
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{-101, 101, 201, -102, 102, 202}));
  EXPECT_EQ(rank.count_of(0, 1), 10);
  EXPECT_EQ(rank.count_of(0, 2), 5);
  for (int i = 0; i < 3; ++i) {
    EXPECT_FALSE(rank.ended());
    rank.left(0);
    rank.left(1);
  }
  EXPECT_TRUE(rank.ended());
  EXPECT_EQ(rank.find_in(1, 1), -1);
}

TEST(SimulatedRank, OverwritesWhatHasLeft) {
  Schedule schedule;
  schedule.steps = {Step::send(walked_range(0, 10), {1}, EdgeKind::kContribution),
                    Step::recv(walked_range(0, 10), 1, EdgeKind::kResult)};
  SimulatedRank rank(*compile(schedule, 10), 8);
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{100}));
  rank.arrived(0);
  EXPECT_TRUE(work_of(rank).empty());
  rank.left(0);
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{-100}));
  EXPECT_TRUE(rank.ended());
}

TEST(SimulatedRank, SendsNoMoreThanItsWindow) {
  Schedule schedule;
  schedule.steps = {Step::send(walked_range(0, 50), {1}, EdgeKind::kResult),
                    Step::recv(walked_range(50, 10), 2, EdgeKind::kResult)};
  SimulatedRank rank(*compile(schedule, 10), 2);
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{100, 101}));
  rank.consumed(0);
  EXPECT_EQ(work_of(rank), (std::vector<int64_t>{102}));
  EXPECT_FALSE(rank.needs_credit(0)) << "one segment";
}

}  // namespace
}  // namespace ringdist
