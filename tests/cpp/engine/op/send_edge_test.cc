#include <gtest/gtest.h>

#include "engine/op/edges.h"

namespace ringdist {
namespace {

using OutState = SendEdge::State;

TEST(SendEdge, GoesFromOpenToDone) {
  SendEdge out({3, 7}, 2);
  EXPECT_EQ(out.peer(), 3);
  EXPECT_EQ(out.state(), OutState::kOpen);
  out.sent();
  EXPECT_EQ(out.state(), OutState::kOpen);
  out.sent();
  EXPECT_EQ(out.state(), OutState::kSent);
  EXPECT_TRUE(out.all_sent());
  EXPECT_TRUE(out.complete(0));
  EXPECT_EQ(out.state(), OutState::kSent);
  EXPECT_TRUE(out.complete(1));
  EXPECT_EQ(out.state(), OutState::kDone);
}

TEST(SendEdge, AsksOnceForEachGrant) {
  SendEdge out({0, 0}, 8);
  EXPECT_FALSE(out.granted());
  EXPECT_TRUE(out.ask());
  EXPECT_EQ(out.state(), OutState::kAsking);
  EXPECT_FALSE(out.ask());
  out.grant(2);
  EXPECT_EQ(out.state(), OutState::kOpen);
  EXPECT_TRUE(out.granted());
  out.grant(1);  // an older grant
  EXPECT_EQ(out.granted_until(), 2);
  out.sent();
  out.sent();
  EXPECT_FALSE(out.granted());
  EXPECT_TRUE(out.ask());
}

// All segments were sent on eager credit while the grant was on its way.
TEST(SendEdge, ARequestMayBeOvertakenByTheLastSegment) {
  SendEdge out({0, 0}, 1);
  EXPECT_TRUE(out.ask());
  out.sent();
  EXPECT_EQ(out.state(), OutState::kSent);
  out.grant(1);
  EXPECT_EQ(out.state(), OutState::kSent);
  EXPECT_TRUE(out.complete(0));
  out.grant(1);
  EXPECT_EQ(out.state(), OutState::kDone);
}

TEST(SendEdge, SendsMayEndInAnyOrder) {
  SendEdge out({0, 0}, 4);
  for (int i = 0; i < 4; ++i) out.sent();
  EXPECT_TRUE(out.complete(2));
  EXPECT_FALSE(out.complete(2));
  EXPECT_EQ(out.completed(), 0);
  EXPECT_TRUE(out.complete(1));
  EXPECT_TRUE(out.complete(0));
  EXPECT_EQ(out.completed(), 3);
  EXPECT_FALSE(out.complete(0));
  EXPECT_TRUE(out.complete(3));
  EXPECT_EQ(out.state(), OutState::kDone);
}

TEST(SendEdge, ForgivesWhatWasSentAndNoMore) {
  SendEdge out({0, 0}, 3);
  EXPECT_FALSE(out.complete_sends());
  out.sent();
  out.sent();
  EXPECT_TRUE(out.complete(1));
  EXPECT_TRUE(out.complete_sends());
  EXPECT_EQ(out.completed(), 2);
  EXPECT_FALSE(out.complete_sends());
  EXPECT_FALSE(out.complete(0)) << "its end comes late";
  EXPECT_EQ(out.state(), OutState::kOpen);
  out.sent();
  EXPECT_TRUE(out.complete_sends());
  EXPECT_EQ(out.state(), OutState::kDone);
}

}  // namespace
}  // namespace ringdist
