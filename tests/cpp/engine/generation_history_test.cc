#include "engine/membership/generation_history.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

// The first generation has the processes 10, 11, 12 and 13.
GenerationHistory::Change first_step() {
  GenerationHistory::Change out;
  out.before = {10, 11, 12, 13};
  out.where = {"at 10", "at 11", "at 12", "at 13"};
  out.store = "old";
  out.decision.generation = 1;
  out.decision.members = {10, 12, 13, 20};
  out.decision.survivor_count = 3;
  out.decision.newcomers = {{20, ""}};
  out.decision.lost = {{1, LostMember::Cause::kDied}};
  out.decision.first_unfinished = 7;
  return out;
}

// A newcomer of the first change and another member are lost; a second newcomer joins.
GenerationHistory::Change second_step() {
  GenerationHistory::Change out;
  out.before = first_step().decision.members;
  out.where = {"at 10", "at 12", "at 13", "at 20"};
  out.store = "old";
  out.decision.generation = 2;
  out.decision.members = {10, 13, 21};
  out.decision.survivor_count = 2;
  out.decision.newcomers = {{21, ""}};
  out.decision.lost = {{1, LostMember::Cause::kSilent}, {3, LostMember::Cause::kDied}};
  out.decision.first_unfinished = 1;
  return out;
}

TEST(GenerationHistory, OneStep) {
  GenerationHistory steps;
  steps.add(first_step());
  const ShrinkResult out = steps.report(0, {10, 12, 13, 20}, "old");
  EXPECT_EQ(out.generation, 1u);
  EXPECT_EQ(out.survivors, (std::vector<int>{0, 2, 3}));
  EXPECT_EQ(out.joined, (std::vector<int>{3}));
  EXPECT_EQ(out.first_unfinished, 7u);
  EXPECT_EQ(out.store, "");
  ASSERT_EQ(out.lost.size(), 1u);
  EXPECT_EQ(out.lost[0].rank, 1);
  EXPECT_TRUE(out.lost[0].died);
  EXPECT_EQ(out.lost[0].where, "at 11");
  EXPECT_EQ(first_step().describe("g"),
            "generation 1 of group 'g': ranks 0 2 3 of 4 go on; rank 1 (at 11) died; newcomers: 1");
}

// The report covers all changes since the group that the caller has.
TEST(GenerationHistory, SeveralStepsAreOneReport) {
  GenerationHistory steps;
  steps.add(first_step());
  steps.add(second_step());
  const ShrinkResult out = steps.report(0, {10, 13, 21}, "new");
  EXPECT_EQ(out.generation, 2u);
  EXPECT_EQ(out.survivors, (std::vector<int>{0, 3}));
  EXPECT_EQ(out.joined, (std::vector<int>{2}));
  EXPECT_EQ(out.first_unfinished, 7u);
  EXPECT_EQ(out.store, "new");
  ASSERT_EQ(out.lost.size(), 2u) << "who came and went meanwhile was no member for the caller";
  EXPECT_EQ(out.lost[0].rank, 1);
  EXPECT_EQ(out.lost[1].rank, 2);
  EXPECT_FALSE(out.lost[1].died);
  EXPECT_EQ(out.lost[1].where, "at 12");

  const ShrinkResult later = steps.report(1, {10, 13, 21}, "new");
  EXPECT_EQ(later.survivors, (std::vector<int>{0, 2}));
  ASSERT_EQ(later.lost.size(), 2u);
  EXPECT_EQ(later.lost[1].rank, 3);
}

}  // namespace
}  // namespace ringdist
