// StragglerDetector, with calls that are made up: how often ranks are late, by their own clocks,
// and the causes.
#include "engine/context/straggler_detector.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>

namespace ringdist {
namespace {

constexpr int kRanks = 4;
constexpr auto kStep = Milliseconds(30);
constexpr auto kLateBy = Milliseconds(30);
const TimePoint kStart = TimePoint() + std::chrono::hours(1);

// Milliseconds by which a rank is late in an op.
using Lateness = std::function<Milliseconds(uint64_t number, int rank)>;

class StragglerDetectorTest : public testing::Test {
 protected:
  // Runs `seconds` of a job: a sample of each rank each second. Returns the lines for the log.
  std::vector<std::string> run(int seconds, const Lateness& late) {
    std::vector<std::string> lines;
    for (int i = 0; i < seconds; ++i) {
      std::vector<GroupCalls> groups;
      for (int rank = 0; rank < ranks_; ++rank) groups.push_back({7, "world", ranks_, rank, {}});
      for (const TimePoint end = now_ + std::chrono::seconds(1); now_ < end;) {
        ++number_;
        Milliseconds last{0};
        for (int rank = 0; rank < ranks_; ++rank) {
          const Milliseconds by = late(number_, rank);
          last = std::max(last, by);
          const bool is_late = by > Milliseconds(0);
          SampledCall call{number_, now_ + by + offset_of(rank), is_late ? usage_ : usual_};
          call.elsewhere = is_late ? elsewhere_ : 0;
          call.other_group = 7;
          groups[static_cast<size_t>(rank)].calls.push_back(call);
        }
        now_ += kStep + last;
      }
      for (int rank = 0; rank < ranks_; ++rank) {
        CallSample sample{"a", "pid 1 on host a", now_ + offset_of(rank), paused_ * i, {}, {}};
        sample.groups.push_back(groups[static_cast<size_t>(rank)]);
        const auto text = sample.encode();
        const auto decoded = CallSample::decode(std::as_bytes(std::span(text)));
        detector_.learn(static_cast<uint64_t>(rank), decoded.value(), now_ - Milliseconds(1),
                        now_ + Milliseconds(1));
      }
      for (std::string& line : detector_.evaluate(now_)) lines.push_back(std::move(line));
    }
    return lines;
  }
  // Returns the cause of the rank that is named.
  std::string named_cause() const {
    const std::string json = detector_.json();
    const size_t begin = json.find(R"("cause":")") + 9;
    return json.substr(begin, json.find('"', begin) - begin);
  }
  // The ranks' clocks differ.
  Duration offset_of(int rank) const { return rank % 2 * skew_; }

  int ranks_ = kRanks;
  Duration skew_ = std::chrono::seconds(1000);
  Duration paused_{};  // added to each process' time per second
  ThreadUsage usage_{.elapsed = 60000, .cpu = 58000};
  ThreadUsage usual_;  // before calls that are not late
  uint32_t elsewhere_ = 0;
  TimePoint now_ = kStart;
  uint64_t number_ = 0;
  StragglerDetector detector_;
  std::mt19937 random_{20261201};
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(StragglerDetectorTest, NamesARankThatIsOftenLate) {
  const auto lines = run(20, [&](uint64_t, int rank) {
    return rank == 2 && random_() % 10 < 3 ? kLateBy : Milliseconds(0);
  });
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_TRUE(has(lines[0], "rank 2 of group 'world' (pid 1 on host a) holds up")) << lines[0];
  EXPECT_TRUE(has(lines[0], " % of the operations 30 ms after them; it computes longer"))
      << lines[0];
  EXPECT_TRUE(has(detector_.json(), R"("rank":2)")) << detector_.json();
}

TEST_F(StragglerDetectorTest, NamesNobodyIfAllAreLateAlike) {
  const auto lines = run(300, [&](uint64_t, int) {
    return random_() % 10 < 3 ? Milliseconds(random_() % 50) : Milliseconds(0);
  });
  EXPECT_TRUE(lines.empty()) << lines[0];
}

TEST_F(StragglerDetectorTest, NamesNobodyForOneLongPause) {
  const auto lines = run(60, [&](uint64_t number, int rank) {
    return Milliseconds(number == 500 && rank == 1 ? 900 : 0);
  });
  EXPECT_TRUE(lines.empty()) << lines[0];
}

TEST_F(StragglerDetectorTest, NamesNobodyForOneBadWindow) {
  const auto lines = run(60, [&](uint64_t number, int rank) {
    return rank == 3 && number > 300 && number < 375 ? kLateBy : Milliseconds(0);
  });
  EXPECT_TRUE(lines.empty()) << lines[0];
}

TEST_F(StragglerDetectorTest, SaysWhenItIsOver) {
  const auto lines = run(60, [&](uint64_t, int rank) {
    return rank == 0 && now_ < kStart + std::chrono::seconds(30) ? kLateBy : Milliseconds(0);
  });
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1], "rank 0 of group 'world' is no longer late");
  EXPECT_EQ(detector_.json(), "[]");
}

TEST_F(StragglerDetectorTest, AQuarterOfTheRanksMayBeLateTogether) {
  ranks_ = 8;
  const auto lines =
      run(30, [&](uint64_t, int rank) { return rank >= 6 ? kLateBy : Milliseconds(0); });
  EXPECT_EQ(lines.size(), 1u);
}

TEST_F(StragglerDetectorTest, KnowsTheCause) {
  const auto cause = [&](ThreadUsage usage, uint32_t elsewhere = 0, Duration paused = {}) {
    usage_ = usage;
    elsewhere_ = elsewhere;
    paused_ = paused;
    detector_ = {};
    number_ = 0;
    (void)run(30, [&](uint64_t, int rank) { return rank == 2 ? kLateBy : Milliseconds(0); });
    return named_cause();
  };
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 59000}), "computes");
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 30000, .run_delay = 29000}), "descheduled");
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 30000}), "idle");
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 30000, .major_faults = 40}), "major_faults");
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 30000}, 28000), "other_group");
  EXPECT_EQ(cause({.elapsed = 60000, .cpu = 30000}, 0, Milliseconds(200)), "stopped");
  EXPECT_EQ(cause({}), "unknown");
}

// A time that the rank spends before each call is no cause.
TEST_F(StragglerDetectorTest, ComparesWithCallsThatAreNotLate) {
  usual_ = {.elapsed = 90000, .cpu = 30000, .run_delay = 30000};
  const auto cause = [&](ThreadUsage usage) {
    usage_ = usage;
    detector_ = {};
    number_ = 0;
    (void)run(30, [&](uint64_t number, int rank) {
      return rank == 2 && number % 3 == 0 ? kLateBy : Milliseconds(0);
    });
    return named_cause();
  };
  EXPECT_EQ(cause({.elapsed = 120000, .cpu = 60000, .run_delay = 30000}), "computes");
  EXPECT_EQ(cause({.elapsed = 120000, .cpu = 30000, .run_delay = 60000}), "descheduled");
  EXPECT_EQ(cause({.elapsed = 120000, .cpu = 30000, .run_delay = 30000}), "idle");
}

TEST_F(StragglerDetectorTest, TakesAnySample) {
  CallSample sample{"a", "a", kStart, {}, {}, {}};
  sample.groups = {{1, "one", 1, 0, {{1, kStart, {}}}},
                   {2, "none", -5, 0, {{1, kStart, {}}}},
                   {3, "outside", 2, 2, {{1, kStart, {}}}},
                   {4, "fine", 2, 1, {{1, kStart, {}}}},
                   {4, "of another size", 3, 1, {{1, kStart, {}}}},
                   {5, "huge", 1 << 30, 1, {{1, kStart, {}}}}};
  detector_.learn(1, sample, kStart, kStart);
  const auto flood = [&](TimePoint now) {
    for (uint64_t id = 1000; id < 6000; ++id) {  // most are left out: 300 MB together
      sample.groups = {{id, "many", 1 << 10, 0, {{1, now, {}}}}};
      detector_.learn(1, sample, now, now);
    }
  };
  flood(kStart);
  for (uint64_t number = 1; number < 5000; ++number) {
    sample.groups = {{4, "fine", 2, 0, {{number, kStart, {}}}}};
    detector_.learn(2, sample, kStart, kStart);
  }
  const Lateness late = [](uint64_t, int rank) { return Milliseconds(rank == 2 ? 20 : 0); };
  EXPECT_TRUE(run(20, late).empty()) << "there are too many groups";
  now_ += std::chrono::hours(1);
  EXPECT_TRUE(detector_.evaluate(now_).empty());
  EXPECT_EQ(run(20, late).size(), 1u) << "the others are forgotten";
  sample.links = {{"10.0.0.1", "10.0.0.2", 1, 2, 3, 4}};
  const auto text = sample.encode();
  const auto decoded = CallSample::decode(std::as_bytes(std::span(text)));
  ASSERT_TRUE(decoded && decoded->links.size() == 1);
  EXPECT_EQ(decoded->encode(), text);
  for (size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(CallSample::decode(std::as_bytes(std::span(text).first(size))));
}

}  // namespace
}  // namespace ringdist
