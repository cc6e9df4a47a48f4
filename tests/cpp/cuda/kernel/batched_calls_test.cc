// Calls that share a launch. Each batch of each call must be processed exactly once.
#include "cuda/kernel/batched_calls.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace ringdist::gpu {
namespace {

// Records which batches were processed, by call.
struct Noting {
  int64_t count = 0;
  std::vector<int>* done = nullptr;

  static constexpr int kScratch = 16;
  constexpr int64_t batches() const { return count; }
  void operator()(const int& worker, int64_t index) const {
    EXPECT_EQ(worker, 7);
    ++done->at(static_cast<size_t>(index));
  }
};
struct OtherNoting : Noting {};

template <typename Body>
void run_all(const Body& body) {
  const int worker = 7;
  for (int64_t i = 0; i < body.batches(); ++i) body(worker, i);
}

class SegmentsTest : public testing::Test {
 protected:
  // Creates this many calls, some of them without batches.
  void make(size_t calls) {
    done_.assign(calls, {});
    for (auto& one : done_) one.assign(random_() % 5, 0);
  }
  Noting body(size_t call) { return {static_cast<int64_t>(done_[call].size()), &done_[call]}; }
  void expect_each_once() const {
    for (const auto& one : done_) EXPECT_EQ(one, std::vector<int>(one.size(), 1));
  }

  std::vector<std::vector<int>> done_;
  const uint32_t seed_ = std::random_device()();
  std::mt19937 random_{seed_};
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_F(SegmentsTest, DoEachBatchOfEachCallOnce) {
  static_assert(sizeof(BatchedCalls<Noting>) <= kLaunchBytes);
  for (size_t calls = 0; calls <= static_cast<size_t>(BatchedCalls<Noting>::kMost); ++calls) {
    make(calls);
    BatchedCalls<Noting> all;
    int64_t batches = 0;
    for (size_t call = 0; call < calls; ++call) {
      ASSERT_FALSE(all.full());
      all.add(body(call));
      batches += body(call).batches();
    }
    EXPECT_EQ(all.batches(), batches);
    run_all(all);
    expect_each_once();
  }
}

TEST_F(SegmentsTest, AreGatheredByTypeAndAsFewAsTheyFit) {
  constexpr size_t kMost = BatchedCalls<Noting>::kMost;
  for (const size_t calls : {size_t{0}, size_t{1}, size_t{2}, kMost, kMost + 1, 3 * kMost}) {
    make(2 * calls);
    size_t launches = 0, alone = 0;
    const auto launch = [&]<typename Body>(const Body& body) {
      ++launches;
      if constexpr (std::is_base_of_v<Noting, Body>) ++alone;
      run_all(body);
      return LaunchError{0};
    };
    CallGatherer gathered(BodyTypes<Noting, OtherNoting>(), launch);
    for (size_t call = 0; call < 2 * calls; call += 2) {
      gathered.add(body(call));
      gathered.add(OtherNoting{body(call + 1)});
    }
    EXPECT_EQ(gathered.finish(), 0);
    expect_each_once();
    EXPECT_EQ(launches, 2 * ((calls + kMost - 1) / kMost));
    EXPECT_EQ(alone, calls % kMost == 1 ? 2 : 0) << "one by itself has no Segments";
  }
}

TEST_F(SegmentsTest, GiveTheFirstErrorOfTheirLaunches) {
  make(3 * BatchedCalls<Noting>::kMost);
  LaunchError next = 1;
  const auto launch = [&](const auto&) { return next++; };
  CallGatherer gathered(BodyTypes<Noting>(), launch);
  for (size_t call = 0; call < done_.size(); ++call) gathered.add(body(call));
  EXPECT_EQ(gathered.finish(), 1);
  EXPECT_EQ(next, 4);
}

}  // namespace
}  // namespace ringdist::gpu
