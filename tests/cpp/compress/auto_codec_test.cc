#include "compress/auto_codec.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "compress/time_marker.h"

namespace ringdist {
namespace {

// Returns the seconds per element of each candidate, on a link with this bandwidth.
std::vector<double> costs(double bytes_per_second) {
  std::vector<double> out;
  for (double bits : {32.0, 16.0, 8.125, 4.125}) out.push_back(bits / 8 / bytes_per_second);
  return out;
}

constexpr double kElements = 1e6;
constexpr double kStep = 0.06;

// Simulates steps of four buckets, ready every 10 ms, over a link of a given bandwidth. It records
// the codecs chosen at each step where a choice was due.
class Training {
 public:
  explicit Training(int size = 4) : auto_(size) {}

  void run(int steps, double bytes_per_second) {
    for (int i = 0; i < steps; ++i) {
      auto_.begin_step(at(0));
      if (auto_.due()) {
        (void)auto_.view();
        chosen.push_back(auto_.choose(auto_.measurement(1e-4, costs(bytes_per_second), low_rank)));
        due.push_back(step_);
      }
      double free = 0;
      for (size_t bucket = 0; bucket < 4; ++bucket) {
        const double ready = 0.01 * static_cast<double>(bucket);
        auto_.ready(bucket, kElements, at(ready));
        const size_t codec = auto_.codec_of(bucket);
        const auto of_codecs = costs(bytes_per_second);
        free = std::max(free, ready) +
               (codec < of_codecs.size() ? 1e-4 + kElements * of_codecs[codec] : low_rank[bucket]);
        auto_.done(auto_.step(), bucket, at(free));
      }
      now_ += std::max(kStep, kStep - 0.03 + free);
      ++step_;
    }
  }

  std::vector<double> low_rank;  // PowerSGD's seconds, by bucket
  std::vector<CodecChoice> chosen;
  std::vector<int> due;
  AutoCodec auto_;

 private:
  TimeMarkerPtr at(double later) const {
    return std::make_shared<HostTimeMarker>(
        TimePoint() +
        std::chrono::duration_cast<Duration>(std::chrono::duration<double>(1 + now_ + later)));
  }
  double now_ = 0;
  int step_ = 0;
};

using Codecs = std::vector<size_t>;

TEST(AutoCodec, LeavesAFastLinkAlone) {
  Training training;
  training.run(9, 10e9);
  ASSERT_EQ(training.due, std::vector<int>{4});
  EXPECT_EQ(training.chosen[0].codecs, Codecs(4, 0));
}

TEST(AutoCodec, FollowsALinkThatChanges) {
  Training training;
  training.run(20, 10e9);
  training.run(100, 20e6);
  training.run(100, 10e9);
  ASSERT_EQ(training.due, (std::vector<int>{4, 12, 112, 212}));
  EXPECT_EQ(training.chosen[0].codecs, Codecs(4, 0));
  EXPECT_EQ(training.chosen[1].codecs, Codecs(4, 0));
  EXPECT_EQ(training.chosen[2].codecs, Codecs(4, 3));
  EXPECT_EQ(training.chosen[3].codecs, Codecs(4, 0));
  EXPECT_NE(training.auto_.reason().find("none for 4 of 4"), std::string::npos)
      << training.auto_.reason();
}

TEST(AutoCodec, TakesPowerSgdOnVerySlowLinks) {
  Training training;
  training.low_rank = std::vector<double>(4, 2e-3);
  training.run(20, 10e6);
  training.run(100, 10e9);
  ASSERT_EQ(training.due, (std::vector<int>{4, 12, 112}));
  EXPECT_EQ(training.chosen[0].codecs, Codecs(4, 4));
  EXPECT_EQ(training.chosen[1].codecs, Codecs(4, 4));
  EXPECT_NE(training.auto_.low_rank().find("powersgd"), std::string::npos);
  EXPECT_EQ(training.chosen[2].codecs, Codecs(4, 0));
}

TEST(AutoCodec, TakesNoPowerSgdForBucketsThatItHasNoTimesOf) {
  Training training;
  training.low_rank = std::vector<double>(3, 2e-3);
  training.run(20, 10e6);
  EXPECT_EQ(training.chosen[0].codecs, Codecs(4, 3));
}

TEST(AutoCodec, GoesOnAfterStepsOfAnother) {
  Training training;
  EXPECT_TRUE(training.auto_.choice().codecs.empty());
  training.run(30, 20e6);
  training.auto_.resume();
  EXPECT_EQ(training.auto_.choice().codecs, Codecs(4, 3));
  training.run(10, 10e9);
  // The next choice comes soon, and uses only new measurements.
  ASSERT_EQ(training.due, (std::vector<int>{4, 12, 34}));
  EXPECT_EQ(training.chosen[2].codecs, Codecs(4, 0));
}

TEST(AutoCodec, WaitsUntilAllRanksHaveSeenAsMuch) {
  EXPECT_TRUE(AutoCodec::agree(std::vector<double>{1, 3, 9}));
  EXPECT_FALSE(AutoCodec::agree(std::vector<double>{0.5, 3, 9}));
  EXPECT_FALSE(
      AutoCodec::agree(std::vector<double>{1, 4, 17}));  // ranks with three and with five buckets
  AutoCodec codec(2);
  for (int step = 0; step < 9; ++step) codec.begin_step(host_now());
  EXPECT_TRUE(codec.due());
  EXPECT_FALSE(AutoCodec::agree(codec.view()));  // no bucket has been measured
  codec.put_off();
  EXPECT_FALSE(codec.due());
  codec.begin_step(host_now());
  EXPECT_TRUE(codec.due());
}

// A time marker like one of a device that lags behind the host.
class LateTimeMarker final : public TimeMarker {
 public:
  LateTimeMarker(const bool& passed, double at) : passed_(passed), at_(at) {}
  bool passed() const override { return passed_; }
  double since(const TimeMarker& earlier) const override {
    EXPECT_TRUE(passed_);
    return at_ - static_cast<const LateTimeMarker&>(earlier).at_;
  }

 private:
  const bool& passed_;
  const double at_;
};

TEST(AutoCodec, CountsAStepOnceAllOfItHasComeToPass) {
  AutoCodec codec(2);
  bool begun = false;
  bool ended = false;
  const auto at = [](const bool& passed, double time) {
    return std::make_shared<LateTimeMarker>(passed, time);
  };
  for (int step = 0; step < 4; ++step) codec.begin_step(at(begun, step));
  codec.begin_step(at(begun, 4));
  codec.ready(0, kElements, at(begun, 4.1));
  codec.done(codec.step(), 0, at(ended, 4.6));
  EXPECT_FALSE(AutoCodec::agree(codec.view()));
  begun = true;
  EXPECT_FALSE(AutoCodec::agree(codec.view()));
  ended = true;
  EXPECT_TRUE(AutoCodec::agree(codec.view()));
  bool next = false;
  codec.begin_step(at(next, 5));
  const std::vector<double> none(4);
  EXPECT_EQ(codec.measurement(0, none, {})[1], 0) << "how long it was is not known yet";
  next = true;
  EXPECT_NEAR(codec.measurement(0, none, {})[1], 0.5, 1e-9);
  EXPECT_NEAR(codec.measurement(0, none, {})[2], 0.1, 1e-9);
}

TEST(AutoCodec, ChoosesOfTheStepThatRanksHaveAgreedOn) {
  AutoCodec codec(2);
  const bool passed = true;
  bool late = false;
  const auto at = [](const bool& when, double time) {
    return std::make_shared<LateTimeMarker>(when, time);
  };
  for (int step = 0; step < 4; ++step) codec.begin_step(at(passed, step));
  const auto bucket = [&](size_t index, const bool& when) {
    codec.ready(index, kElements, at(passed, static_cast<double>(codec.step())));
    codec.done(codec.step(), index, at(when, static_cast<double>(codec.step()) + 0.5));
  };
  bucket(0, passed);
  codec.begin_step(at(passed, 4));
  bucket(0, late);
  bucket(1, late);
  codec.begin_step(at(passed, 5));
  EXPECT_EQ(codec.view(), (std::vector<double>{1, 1, 1}));
  late = true;  // completes a step of two buckets after the ranks agreed on one with one bucket
  const auto measured = codec.measurement(1e-4, costs(10e9), {});
  EXPECT_EQ(measured.size(), 2 + 2 * 1 + 4);
  EXPECT_EQ(codec.choose(measured).codecs.size(), 1);
}

TEST(AutoCodec, ChoosesNothingAlone) {
  Training training(1);
  training.run(20, 1e6);
  EXPECT_TRUE(training.due.empty());
}

}  // namespace
}  // namespace ringdist
