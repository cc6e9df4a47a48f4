#include "engine/group/failure_state.h"

#include <gtest/gtest.h>

#include "engine/group/now.h"

namespace ringdist {
namespace {

const Error kFirst(ErrorKind::kTimeout, "first");
const Error kSecond(ErrorKind::kPeerLost, "second");
constexpr Duration kGrace = Milliseconds(500);

TEST(FailureState, TheFirstCauseStays) {
  FailureState ending;
  EXPECT_EQ(ending.state(), FailureState::State::kActive);
  EXPECT_FALSE(ending.cause());
  EXPECT_TRUE(ending.fail(kFirst));
  EXPECT_FALSE(ending.fail(kSecond));
  EXPECT_EQ(ending.state(), FailureState::State::kFailed);
  EXPECT_EQ(ending.cause().message(), "first");
}

TEST(FailureState, DrainingWaitsForOlderOps) {
  FailureState ending;
  ending.fail_after(5, kFirst, /*tell_others=*/true, kNow);
  EXPECT_EQ(ending.state(), FailureState::State::kDraining);
  EXPECT_FALSE(ending.cause());
  const FailureState::Oldest older{4, kNow - std::chrono::hours(1)};
  EXPECT_FALSE(ending.due(older, kGrace, kNow + Milliseconds(499)));
  EXPECT_TRUE(ending.due(older, kGrace, kNow + Milliseconds(500))) << "it stands still";
  EXPECT_FALSE(
      ending.due(FailureState::Oldest{4, kNow + Milliseconds(1)}, kGrace, kNow + Milliseconds(500)))
      << "it has moved since";
  EXPECT_TRUE(ending.due(FailureState::Oldest{5, kNow}, kGrace, kNow));
  const auto due = ending.due(std::nullopt, kGrace, kNow);
  ASSERT_TRUE(due);
  EXPECT_EQ(due->cause.message(), "first");
  EXPECT_TRUE(due->tell_others);
}

TEST(FailureState, OfSeveralDoomsTheEarliestOpsHolds) {
  FailureState ending;
  ending.fail_after(5, kFirst, false, kNow);
  ending.fail_after(7, kSecond, true, kNow);
  EXPECT_EQ(ending.due(std::nullopt, kGrace, kNow)->number, 5u);
  ending.fail_after(2, kSecond, true, kNow);
  EXPECT_EQ(ending.due(std::nullopt, kGrace, kNow)->number, 2u);
}

TEST(FailureState, AFailedGroupDoesNotDrain) {
  FailureState ending;
  ending.fail_after(5, kFirst, false, kNow);
  EXPECT_TRUE(ending.fail(kSecond));
  EXPECT_FALSE(ending.due(std::nullopt, kGrace, kNow));
  EXPECT_EQ(ending.cause().message(), "second");
}

}  // namespace
}  // namespace ringdist
