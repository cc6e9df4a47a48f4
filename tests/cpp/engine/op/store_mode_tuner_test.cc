// Choice of the store mode of long ops, with simulated times.
#include "engine/op/store_mode_tuner.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

constexpr int64_t kLong = int64_t{64} << 20;

class StoreModeTunerTest : public testing::Test {
 protected:
  // Runs ops that take `streaming` with streaming stores and `cached` otherwise. Returns the
  // number of ops with streaming stores.
  int run(int ops, Duration cached, Duration streaming, Collective kind = Collective::kAllreduce) {
    int count = 0;
    for (int i = 0; i < ops; ++i) {
      const auto trial = choice_.begin(kind, kLong, now_);
      const bool streams = trial.stores == StoreMode::kStreaming;
      count += streams ? 1 : 0;
      now_ += streams ? streaming : cached;
      choice_.ended(trial, now_);
    }
    return count;
  }

  StoreModeTuner choice_;
  TimePoint now_ = Clock::now();
};

TEST_F(StoreModeTunerTest, ShortOpsStayInTheCaches) {
  for (int i = 0; i < 100; ++i) {
    const auto trial = choice_.begin(Collective::kAllreduce, StoreModeTuner::kLongBytes - 1, now_);
    EXPECT_EQ(trial.stores, StoreMode::kCached);
    EXPECT_FALSE(trial.of);
  }
}

TEST_F(StoreModeTunerTest, TheFasterIsTakenAndTheOtherTriedNowAndThen) {
  EXPECT_GT(run(160, Milliseconds(10), Milliseconds(8)), 140);
  EXPECT_LT(run(160, Milliseconds(10), Milliseconds(8), Collective::kAllgather), 160);
}

TEST_F(StoreModeTunerTest, EachKindHasItsOwn) {
  run(100, Milliseconds(10), Milliseconds(8));
  EXPECT_LT(run(160, Milliseconds(8), Milliseconds(10), Collective::kAlltoall), 20);
}

TEST_F(StoreModeTunerTest, ItFollowsAChange) {
  run(1000, Milliseconds(10), Milliseconds(8));
  run(100, Milliseconds(10), Milliseconds(14));  // the conditions have changed
  EXPECT_LT(run(160, Milliseconds(10), Milliseconds(14)), 20);
  run(400, Milliseconds(10), Milliseconds(8));
  EXPECT_GT(run(160, Milliseconds(10), Milliseconds(8)), 140);
}

TEST_F(StoreModeTunerTest, OpsThatFailAreNotCounted) {
  for (int i = 0; i < 6; ++i) choice_.begin(Collective::kAllreduce, kLong, now_);
  EXPECT_EQ(choice_.begin(Collective::kAllreduce, kLong, now_).stores, StoreMode::kCached);
}

}  // namespace
}  // namespace ringdist
