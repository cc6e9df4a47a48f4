// Backoff of a thread that makes progress while nothing happens, with a clock that the test moves.
#include "engine/progress/backoff.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

using Next = Backoff::Next;
using Core = Backoff::Core;
using Wait = Backoff::Wait;
using std::chrono::microseconds;

constexpr Duration kNone = std::chrono::nanoseconds(200);
constexpr Duration kOther = microseconds(8);     // another rank polls and yields
constexpr Duration kSlice = microseconds(1400);  // another thread computes

class BackoffTest : public testing::Test {
 protected:
  BackoffTest() { backoff_.begin(now_); }

  Next after(Duration waited, Wait wait = Wait::kNear) const {
    return backoff_.next(now_ + waited, wait);
  }
  void yield(Duration took) {
    now_ += took;
    backoff_.yielded(took, now_);
  }
  // Simulates a wait that nothing ends. Returns true if it yields before it sleeps.
  bool probes(Duration took) {
    backoff_.begin(now_);
    now_ += Backoff::kSpin;
    if (backoff_.next(now_, Wait::kNear) != Next::kYield) return false;
    yield(took);
    return true;
  }

  Backoff backoff_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
};

TEST_F(BackoffTest, AloneItLooksThenYieldsAndSleepsLate) {
  EXPECT_EQ(after(Duration(0)), Next::kPoll);
  EXPECT_EQ(after(Backoff::kSpin - kNone), Next::kPoll);
  EXPECT_EQ(after(Backoff::kSpin), Next::kYield);
  yield(kNone);
  EXPECT_EQ(backoff_.core(), Core::kOurs);
  EXPECT_EQ(after(Backoff::kStay - 2 * kNone), Next::kYield);
  EXPECT_EQ(after(Backoff::kStay), Next::kSleep);
  backoff_.begin(now_ + Backoff::kStay);  // a message has arrived
  EXPECT_EQ(after(Backoff::kStay), Next::kPoll);
}

TEST_F(BackoffTest, WithNothingInFlightItSleepsSoon) {
  EXPECT_EQ(after(Backoff::kSpin - kNone, Wait::kNothing), Next::kPoll);
  EXPECT_EQ(after(Backoff::kSpin, Wait::kNothing), Next::kSleep);
}

TEST_F(BackoffTest, ForOtherHostsItStaysForAShortMessageOnly) {
  EXPECT_EQ(after(Backoff::kSpin, Wait::kFar), Next::kYield);
  EXPECT_EQ(after(Backoff::kStayFar - kNone, Wait::kFar), Next::kYield);
  EXPECT_EQ(after(Backoff::kStayFar, Wait::kFar), Next::kSleep);
  EXPECT_EQ(after(Backoff::kStayFar), Next::kYield);
}

TEST_F(BackoffTest, ACoreThatRanksShareIsGivenUpAtOnce) {
  yield(kOther);
  EXPECT_EQ(backoff_.core(), Core::kShared);
  backoff_.begin(now_);
  EXPECT_EQ(after(Duration(0)), Next::kYield);
  EXPECT_EQ(after(Backoff::kStay), Next::kSleep);
  for (int i = 1; i < Backoff::kQuietYields; ++i) yield(kNone);
  EXPECT_EQ(backoff_.core(), Core::kShared);
  yield(kNone);
  EXPECT_EQ(backoff_.core(), Core::kOurs);
}

// A foreign thread that ran once costs one or two waits.
TEST_F(BackoffTest, ALostSliceIsSoonForgotten) {
  yield(kSlice);
  EXPECT_EQ(backoff_.core(), Core::kTaken);
  backoff_.begin(now_);
  EXPECT_EQ(after(Duration(0)), Next::kPoll);
  EXPECT_EQ(after(Backoff::kSpin), Next::kSleep);
  now_ += kSlice;
  EXPECT_TRUE(probes(kNone));
  EXPECT_EQ(backoff_.core(), Core::kOurs);
}

// Probes for a thread that stays become rarer, because each probe loses a time slice to it.
TEST_F(BackoffTest, ACoreThatStaysTakenIsSleptOn) {
  const TimePoint begun = now_;
  Duration lost{0};
  int probed = 0;
  while (now_ < begun + std::chrono::seconds(10)) {
    if (probes(kSlice)) {
      lost += kSlice;
      ++probed;
    } else {
      EXPECT_EQ(after(Duration(0)), Next::kSleep);
    }
    now_ += microseconds(50);  // asleep
  }
  EXPECT_GT(probed, Backoff::kMostProbes);
  EXPECT_LT(lost, std::chrono::milliseconds(200));
  now_ += std::chrono::milliseconds(200);
  EXPECT_TRUE(probes(kNone)) << "it is found out that the core is free again";
  EXPECT_EQ(backoff_.core(), Core::kOurs);
  EXPECT_TRUE(probes(kSlice));
  now_ += kSlice;
  EXPECT_TRUE(probes(kSlice)) << "counted anew";
}

}  // namespace
}  // namespace ringdist
