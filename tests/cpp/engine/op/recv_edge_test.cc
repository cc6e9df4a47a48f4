#include <gtest/gtest.h>

#include "engine/op/edges.h"

namespace ringdist {
namespace {

using InState = RecvEdge::State;
constexpr int64_t kBytes = 100;
constexpr int64_t kWindow = 8;

class RecvEdgeTest : public testing::Test {
 protected:
  RecvEdge::GrantTerms terms(bool oldest = false, bool unsolicited = false) const {
    return {kWindow, kBytes, oldest, unsolicited, now_};
  }
  void keep(RecvEdge& in, int64_t segment) { in.keep(segment, {{}, false}); }

  TimePoint now_;
  GrantBudget budget_{kWindow * kBytes};
  RecvEdge in_{{2, 0}, 20, budget_};
};

TEST_F(RecvEdgeTest, GrantsAWindowAndThenHalfAWindowAtATime) {
  EXPECT_EQ(in_.state(), InState::kQuiet);
  EXPECT_EQ(in_.grant(terms()), kWindow);
  EXPECT_EQ(in_.state(), InState::kGranted);
  EXPECT_EQ(budget_.granted(), kWindow * kBytes);
  std::vector<int64_t> grants;
  for (int64_t segment = 0; segment < 20; ++segment) {
    ASSERT_TRUE(in_.expects(segment));
    in_.consume(kBytes);
    EXPECT_FALSE(in_.expects(segment));
    if (in_.wants_grant(kWindow))
      if (const auto until = in_.grant(terms())) grants.push_back(*until);
  }
  EXPECT_EQ(grants, (std::vector<int64_t>{12, 16, 20}));
  EXPECT_EQ(in_.state(), InState::kDone);
  EXPECT_EQ(budget_.granted(), 0);
}

TEST_F(RecvEdgeTest, WhoAsksIsToldAtOnceOfWhatThereIs) {
  ASSERT_TRUE(in_.grant(terms()));
  in_.consume(kBytes);
  EXPECT_FALSE(in_.wants_grant(kWindow));
  in_.ask();
  EXPECT_EQ(in_.state(), InState::kAwaited);
  ASSERT_TRUE(in_.wants_grant(kWindow));
  EXPECT_EQ(in_.grant(terms()), kWindow + 1);
  EXPECT_EQ(in_.state(), InState::kGranted);
}

TEST_F(RecvEdgeTest, WaitsForMemoryUnlessItsOpIsTheOldest) {
  budget_.change(kWindow * kBytes);  // used by another edge
  in_.ask();
  EXPECT_FALSE(in_.grant(terms()));
  EXPECT_EQ(in_.state(), InState::kAwaited);
  EXPECT_EQ(in_.grant(terms(/*oldest=*/true)), 1);
  EXPECT_EQ(budget_.granted(), (kWindow + 1) * kBytes);
  keep(in_, 0);
  in_.ask();
  EXPECT_EQ(in_.grant(terms(/*oldest=*/true)), 2) << "one more than is here";
  budget_.change(-kWindow * kBytes);
  in_.ask();
  EXPECT_EQ(in_.grant(terms()), kWindow);
}

TEST_F(RecvEdgeTest, AnUnsolicitedGrantThatDoesNotFitIsNotAwaited) {
  budget_.change(kWindow * kBytes);
  EXPECT_FALSE(in_.grant(terms(/*oldest=*/false, /*unasked=*/true)));
  EXPECT_EQ(in_.state(), InState::kQuiet);
}

TEST_F(RecvEdgeTest, WhatIsKeptCountsAsHere) {
  RecvEdge in({2, 0}, 3, budget_);
  for (int64_t segment : {2, 0, 1}) {
    EXPECT_TRUE(in.lacks_any());
    keep(in, segment);
    EXPECT_FALSE(in.expects(segment));
  }
  EXPECT_FALSE(in.lacks_any());
  EXPECT_FALSE(in.wants_grant(kWindow)) << "nothing is left to come";
  EXPECT_FALSE(in.expects(3));
  EXPECT_EQ(in.kept_count(), 3u);
}

// The first segment that a grant allowed serves to measure the answer time of a slow link.
TEST_F(RecvEdgeTest, KnowsWhichSegmentAnswersAGrant) {
  EXPECT_FALSE(in_.answers_grant(0));
  keep(in_, 0);  // arrived on eager credit
  now_ += Milliseconds(5);
  const TimePoint granted = now_;
  ASSERT_TRUE(in_.grant(terms()));
  EXPECT_FALSE(in_.answers_grant(0));
  EXPECT_EQ(in_.answers_grant(1), granted);
}

TEST_F(RecvEdgeTest, GivesBackWhatItPromisedWhenItStops) {
  ASSERT_TRUE(in_.grant(terms()));
  keep(in_, 0);
  in_.stop();
  EXPECT_EQ(budget_.granted(), 0);
  EXPECT_EQ(in_.kept_count(), 0u);
}

}  // namespace
}  // namespace ringdist
