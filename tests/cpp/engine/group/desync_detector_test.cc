#include "engine/group/desync_detector.h"

#include <gtest/gtest.h>

#include "engine/group/now.h"

namespace ringdist {
namespace {

Fingerprint allreduce(int64_t count) {
  Fingerprint out{};
  out.kind = Collective::kAllreduce;
  out.dtype = DType::kFloat32;
  out.reduce_op = ReduceOp::kSum;
  out.count = count;
  return out;
}

TEST(DesyncDetector, RemembersTheLastOfOurCalls) {
  DesyncDetector roll(0, 2);
  EXPECT_FALSE(roll.find(0));
  EXPECT_FALSE(roll.find(1));
  for (uint64_t number = 1; number <= 1500; ++number)
    roll.record_call(number, allreduce(static_cast<int64_t>(number)));
  EXPECT_FALSE(roll.find(400)) << "forgotten";
  ASSERT_TRUE(roll.find(1500));
  EXPECT_EQ(roll.find(1500)->count, 1500);
  EXPECT_EQ(roll.find(1000)->count, 1000);
}

TEST(DesyncDetector, NamesThoseOfWhomThereIsNoSign) {
  DesyncDetector roll(1, 4);
  EXPECT_EQ(roll.missing(7), (std::vector{0, 2, 3}));
  roll.record_peer_call(7, 2, allreduce(1));
  EXPECT_EQ(roll.missing(7), (std::vector{0, 3}));
  EXPECT_EQ(roll.next_peer_call(6), 7u);
  EXPECT_EQ(roll.next_peer_call(7), 0u);
}

TEST(DesyncDetector, KnowsWhoHasSaidThatItHasNotCome) {
  DesyncDetector roll(0, 2);
  const std::string silent = "which does not say whether it has called it";
  EXPECT_EQ(roll.absence(1, 5, kNow), silent);
  roll.record_absence(1, 0, kNow + Milliseconds(1));
  EXPECT_EQ(roll.absence(1, 5, kNow), "which has not called it (it has called none)");
  roll.record_absence(1, 3, kNow + Milliseconds(2));
  EXPECT_EQ(roll.absence(1, 5, kNow), "which has not called it (its last: #3)");
  EXPECT_EQ(roll.absence(1, 3, kNow), silent) << "it has called that one";
  EXPECT_EQ(roll.absence(1, 5, kNow + Milliseconds(3)), silent) << "it said so before our call";
}

TEST(DesyncDetector, AnswersAndTellsOnce) {
  DesyncDetector roll(0, 2);
  EXPECT_TRUE(roll.announce_absence_once(5));
  EXPECT_FALSE(roll.announce_absence_once(5));
  EXPECT_FALSE(roll.announce_absence_once(4));
  EXPECT_TRUE(roll.announce_absence_once(6));
  EXPECT_FALSE(roll.announce_once(5)) << "it has not been called";
  roll.record_call(5, allreduce(1));
  EXPECT_TRUE(roll.announce_once(5));
  EXPECT_FALSE(roll.announce_once(5));
  roll.record_call(5 + 1024, allreduce(1));  // shares the slot of op 5
  EXPECT_TRUE(roll.announce_once(5 + 1024));
}

TEST(DesyncDetector, SaysInWhatCallsDiffer) {
  const auto words = [](const Fingerprint& ours, const Fingerprint& theirs) {
    const Error error = disagreement(4, "rank 0", ours, "rank 1 (there)", theirs);
    EXPECT_EQ(error.kind(), ErrorKind::kMismatch);
    return error.message();
  };
  EXPECT_EQ(words(allreduce(1), allreduce(2)),
            "ranks disagree on op #4: rank 0 called all_reduce(float32, 1 element, SUM), rank 1 "
            "(there) called all_reduce(float32, 2 elements, SUM)");
  Fingerprint other_plan = allreduce(1);
  other_plan.plan = Fingerprint::plan_part(99, 0);
  EXPECT_TRUE(words(allreduce(1), other_plan).ends_with("options differ"));
  Fingerprint coded = allreduce(1);
  coded.plan = Fingerprint::plan_part(1, 5);
  Fingerprint other_coded = allreduce(1);
  other_coded.plan = Fingerprint::plan_part(2, 5);
  EXPECT_NE(words(coded, other_coded).find("other settings of compression"), std::string::npos);
  EXPECT_TRUE(words(allreduce(Fingerprint::kPerEdge),
                    [] {
                      Fingerprint out = allreduce(Fingerprint::kPerEdge);
                      out.plan = Fingerprint::plan_part(3, 0);
                      return out;
                    }())
                  .ends_with(" of other sizes"));
}

}  // namespace
}  // namespace ringdist
