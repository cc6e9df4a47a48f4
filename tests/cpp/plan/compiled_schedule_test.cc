#include "plan/compiled_schedule.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

Range output(int64_t offset, int64_t count) { return {BufferId::kOutput, offset, count}; }

TEST(CompiledSchedule, NumbersTheEdgesOfEachPair) {
  Schedule schedule;
  schedule.steps = {Step::send(output(0, 4), {1, 2}, EdgeKind::kContribution),
                    Step::send(output(4, 4), {1}, EdgeKind::kContribution),
                    Step::recv(output(8, 4), 1, EdgeKind::kResult),
                    Step::recv(output(12, 4), 1, EdgeKind::kResult)};
  const auto compiled = compile(schedule, 100);
  EXPECT_EQ(compiled->steps[0].out[0].edge, 0u);
  EXPECT_EQ(compiled->steps[0].out[1].edge, 0u);
  EXPECT_EQ(compiled->steps[1].out[0].edge, 1u);
  EXPECT_EQ(compiled->inbound.at({1, 0}).step, 2);
  EXPECT_EQ(compiled->inbound.at({1, 1}).step, 3);
  EXPECT_EQ(compiled->outbound.at({2, 0}).slot, 1);
}

TEST(CompiledSchedule, CutsSegmentsAndKeepsOneForNothing) {
  Schedule schedule;
  schedule.steps = {Step::recv(output(0, 250), 1, EdgeKind::kResult),
                    Step::recv(output(250, 0), 1, EdgeKind::kResult)};
  const auto compiled = compile(schedule, 100);
  EXPECT_EQ(compiled->steps[0].segments, 3);
  EXPECT_EQ(compiled->segment_end(compiled->steps[0], 2), 250);
  EXPECT_EQ(compiled->steps[1].segments, 1);
}

TEST(CompiledSchedule, OverwritingWaitsForTheSendToBeOver) {
  Schedule schedule;
  schedule.steps = {Step::send(output(0, 10), {1}, EdgeKind::kContribution),
                    Step::recv(output(0, 10), 1, EdgeKind::kResult),
                    Step::send(output(5, 5), {2}, EdgeKind::kRelay),
                    Step::recv(output(20, 5), 2, EdgeKind::kRelay)};
  const auto compiled = compile(schedule, 100);
  ASSERT_EQ(compiled->steps[1].after.size(), 1u);
  EXPECT_TRUE(compiled->steps[1].after[0].finished);
  ASSERT_EQ(compiled->steps[2].after.size(), 1u);  // reads the result of the receive
  EXPECT_FALSE(compiled->steps[2].after[0].finished);
  EXPECT_EQ(compiled->steps[2].after[0].shift, 5);
  EXPECT_TRUE(compiled->steps[3].after.empty());
}

TEST(CompiledSchedule, WhatWasOverwrittenWholeNeedNotBeWaitedFor) {
  Schedule schedule;
  schedule.steps = {Step::send(output(0, 10), {1}, EdgeKind::kContribution),
                    Step::send(output(8, 10), {2}, EdgeKind::kContribution),
                    Step::recv(output(0, 10), 1, EdgeKind::kResult),
                    Step::recv(output(0, 18), 2, EdgeKind::kResult)};
  const auto compiled = compile(schedule, 100);
  std::vector<int> on;
  for (const Dependency& one : compiled->steps[3].after) on.push_back(one.on);
  EXPECT_EQ(on, (std::vector<int>{1, 2})) << "step 2 comes after 0; 1 reaches beyond it";
  EXPECT_EQ(compiled->steps[0].before, (std::vector<int>{2}));
}

// Dependences stay few for thousands of ranks, because planning must not take quadratic time.
TEST(CompiledSchedule, DependsOnFewStepsWhateverTheSize) {
  constexpr int kSize = 2048;
  for (const Algorithm& algorithm : algorithms()) {
    for (const Collective kind : algorithm.collectives()) {
      Shape shape{.rank = kSize / 3, .size = kSize, .count = 5 * kSize + 7};
      const auto compiled = compile(algorithm.build(kind, shape), 1000);
      size_t all = 0;
      for (const CompiledStep& step : compiled->steps) all += step.after.size();
      EXPECT_LE(all, 6 * compiled->steps.size()) << algorithm.name << collective_name(kind);
    }
  }
}

}  // namespace
}  // namespace ringdist
