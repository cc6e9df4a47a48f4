#include "engine/door.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

constexpr Duration kMoment = Milliseconds(10);

class DoorTest : public testing::Test {
 protected:
  bool knock(ProcessId process) { return door_.knock({process, "an entry"}, now_); }
  std::vector<ProcessId> waiting() const {
    std::vector<ProcessId> out;
    for (const Newcomer& one : door_.waiting(now_)) out.push_back(one.process);
    return out;
  }

  Door door_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

TEST_F(DoorTest, OneIsLookedAtOnceAndThenWaits) {
  EXPECT_TRUE(knock(7));
  EXPECT_FALSE(knock(7));
  EXPECT_TRUE(waiting().empty()) << "nobody has seen it";
  door_.accept(7);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
  EXPECT_EQ(door_.waiting(now_)[0].entry, "an entry");
  door_.accept(8);  // has not knocked
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
}

TEST_F(DoorTest, ThoseWhoWereStartedTogetherComeTogether) {
  knock(7);
  door_.accept(7);
  EXPECT_FALSE(door_.is_due(now_));
  now_ += Milliseconds(100);
  knock(7);
  knock(9);
  door_.accept(9);
  EXPECT_FALSE(door_.is_due(now_));
  now_ += Milliseconds(100);
  EXPECT_TRUE(door_.is_due(now_));
  EXPECT_EQ(waiting(), (std::vector<ProcessId>{7, 9}));
}

TEST_F(DoorTest, OneThatKnocksNoMoreIsNotWaitedFor) {
  knock(7);
  door_.accept(7);
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(waiting().empty());
  EXPECT_FALSE(door_.is_due(now_));
  EXPECT_FALSE(knock(7)) << "it was seen";
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
  now_ += std::chrono::seconds(1);
  door_.let_in({}, now_);
  EXPECT_TRUE(knock(7)) << "it was forgotten";
}

TEST_F(DoorTest, WhoIsAMemberWaitsNoMore) {
  for (const ProcessId one : {7, 8}) {
    knock(one);
    door_.accept(one);
  }
  now_ += kMoment;
  door_.let_in({1, 2, 7}, now_);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{8});
}

// A decision has the entries of all.
TEST_F(DoorTest, ManyComeByAndBy) {
  for (ProcessId one = 1; one <= 1000; ++one) {
    knock(one);
    door_.accept(one);
  }
  EXPECT_EQ(waiting().size(), 128u);
}

}  // namespace
}  // namespace ringdist
