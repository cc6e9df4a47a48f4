#include "negotiation/stall/stall_inspector.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace ringdist {
namespace {

using std::chrono::seconds;

// Ranks with immediate delivery. Messages to and from stopped ranks are dropped.
class StallRank final : public StallDelegate {
 public:
  struct ServiceMessage {
    int to;
    std::vector<std::byte> bytes;
  };

  StallRank(int rank, int size, Duration warn_after) : watch(*this, rank, size, warn_after) {}

  void send_stall(int rank, std::vector<std::byte> message) override {
    outbox.push_back({rank, std::move(message)});
  }
  std::string describe_rank(int rank) const override { return "rank " + std::to_string(rank); }
  std::vector<OpenCall> open_calls() const override { return open; }
  bool has_joined() const override { return joined; }
  std::string elsewhere() const override { return doing; }
  void warn(const std::string& text) override { warnings.push_back(text); }

  std::vector<OpenCall> open;
  bool joined = false;
  bool is_stopped = false;
  std::string doing;
  std::vector<std::string> warnings;
  std::deque<ServiceMessage> outbox;
  StallInspector watch;
};

class StallWorld {
 public:
  explicit StallWorld(int size, Duration warn_after = seconds(60)) {
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(std::make_unique<StallRank>(rank, size, warn_after));
  }
  StallRank& operator[](int rank) { return *ranks_[rank]; }
  void call(int rank, const std::string& name) { ranks_[rank]->open.push_back({name, now_}); }

  // Ticks like a lane: only ranks with open calls tick.
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end; now_ += std::chrono::milliseconds(50)) {
      for (auto& rank : ranks_)
        if (!rank->is_stopped && !rank->open.empty()) rank->watch.tick(now_);
      deliver();
    }
  }
  int messages() const { return messages_; }
  size_t warnings() const {
    size_t out = 0;
    for (const auto& rank : ranks_) out += rank->warnings.size();
    return out;
  }

 private:
  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (int from = 0; from < static_cast<int>(ranks_.size()); ++from) {
        auto& outbox = ranks_[from]->outbox;
        while (!ranks_[from]->is_stopped && !outbox.empty()) {
          const StallRank::ServiceMessage message = std::move(outbox.front());
          outbox.pop_front();
          any = true;
          ++messages_;
          if (ranks_[message.to]->is_stopped) continue;
          const Error error = ranks_[message.to]->watch.receive(from, message.bytes, now_);
          EXPECT_FALSE(error) << error.what();
        }
      }
    }
  }

  std::vector<std::unique_ptr<StallRank>> ranks_;
  TimePoint now_ = TimePoint() + std::chrono::hours(1);
  int messages_ = 0;
};

TEST(StallInspector, FindsWhoHasNotCalledAndWhatTheyDoInstead) {
  StallWorld ranks(4);
  for (const int rank : {0, 1}) ranks.call(rank, "a");
  ranks.call(2, "b");
  ranks[3].joined = true;
  ranks.pass(std::chrono::milliseconds(400));
  EXPECT_EQ(ranks.messages(), 0);
  EXPECT_EQ(ranks[0].watch.awaits("a"), "");
  ranks.pass(seconds(1));
  const std::string found = "rank 2, which waits for 'b'";  // a joined rank is not involved
  EXPECT_EQ(ranks[0].watch.awaits("a"), found);
  EXPECT_EQ(ranks[1].watch.awaits("a"), found);
  EXPECT_EQ(ranks[2].watch.awaits("b"), "rank 0, which waits for 'a'; rank 1, which waits for 'a'");
  EXPECT_EQ(ranks.warnings(), 0u);
}

TEST(StallInspector, WarnsOnceOfAllForEachTimeThatPasses) {
  StallWorld ranks(5);
  for (const char* name : {"a", "b", "c", "d", "e", "f"})
    for (int rank = 1; rank < 5; ++rank) ranks.call(rank, name);
  ranks.pass(seconds(59));
  EXPECT_EQ(ranks.warnings(), 0u);
  ranks.pass(seconds(30));
  ASSERT_EQ(ranks[0].warnings.size(), 1u);
  EXPECT_EQ(ranks[0].warnings[0],
            "'a' (for 60 s), 'b' (for 60 s), 'c' (for 60 s), 'd' (for 60 s) and 2 more wait for "
            "rank 0, which waits for nothing");
  ranks.pass(seconds(120));
  EXPECT_EQ(ranks[0].warnings.size(), 3u);
  EXPECT_EQ(ranks.warnings(), 3u);
  EXPECT_LT(ranks.messages(), 500);
}

TEST(StallInspector, NeverWarnsIfSoAsked) {
  StallWorld ranks(2, seconds(0));
  ranks.call(1, "a");
  ranks.pass(seconds(200));
  EXPECT_EQ(ranks.warnings(), 0u);
  EXPECT_EQ(ranks[1].watch.awaits("a"), "rank 0, which waits for nothing");
}

TEST(StallInspector, ARankThatDoesNotAnswerIsNamed) {
  StallWorld ranks(3, seconds(10));
  for (const int rank : {0, 1}) ranks.call(rank, "a");
  ranks[2].is_stopped = true;
  ranks.pass(seconds(15));
  EXPECT_EQ(ranks[1].watch.awaits("a"), "rank 2, which does not answer");
  ASSERT_EQ(ranks.warnings(), 1u);
  EXPECT_EQ(ranks[0].warnings[0], "'a' (for 11 s) waits for rank 2, which does not answer");
}

TEST(StallInspector, WhereRankZeroDoesNotAnswerTheOthersSaySo) {
  StallWorld ranks(2, seconds(10));
  ranks.call(1, "a");
  ranks[0].is_stopped = true;
  ranks.pass(seconds(15));
  EXPECT_EQ(ranks[1].watch.awaits("a"), "rank 0, which does not answer");
  ASSERT_EQ(ranks[1].warnings.size(), 1u);
  EXPECT_EQ(ranks[1].warnings[0], "'a' waits for rank 0, which does not answer");
}

TEST(StallInspector, SaysWhatARankDoesElsewhere) {
  StallWorld ranks(2);
  ranks.call(0, "a");
  ranks[1].doing = "group 'b': all_reduce #3 runs";
  ranks.pass(seconds(1));
  EXPECT_EQ(ranks[0].watch.awaits("a"), "rank 1, which is in group 'b': all_reduce #3 runs");
}

TEST(StallInspector, WarnsOfEachName) {
  StallWorld ranks(3, seconds(10));
  ranks.call(1, "a");
  ranks.pass(seconds(2));
  ranks.call(2, "b");
  ranks.pass(seconds(9));
  ASSERT_EQ(ranks[0].warnings.size(), 1u);
  ranks.pass(seconds(2));
  ASSERT_EQ(ranks[0].warnings.size(), 2u);
  EXPECT_NE(ranks[0].warnings[1].find("'b' (for 10 s)"), std::string::npos) << ranks[0].warnings[1];
}

// This holds for any offsets of their ticks.
TEST(StallInspector, ManyRanksAskLittle) {
  constexpr int kRanks = 40;
  StallWorld ranks(kRanks);
  for (int rank = 1; rank < kRanks; ++rank) {
    ranks.call(rank, "a");
    ranks.pass(std::chrono::milliseconds(150));
  }
  ranks.pass(seconds(8));
  EXPECT_LT(ranks.messages(), 12 * 3 * kRanks);
  EXPECT_EQ(ranks[kRanks - 1].watch.awaits("a"), "rank 0, which waits for nothing");
}

TEST(StallInspector, WhatHasBeenRunIsForgotten) {
  StallWorld ranks(2);
  ranks.call(0, "a");
  ranks.pass(seconds(1));
  EXPECT_NE(ranks[0].watch.awaits("a"), "");
  ranks[0].open.clear();
  ranks.call(0, "b");
  ranks.pass(seconds(1));
  EXPECT_EQ(ranks[0].watch.awaits("a"), "");
}

TEST(StallInspector, LettersThatMakeNoSenseAreErrors) {
  StallWorld ranks(3);
  const TimePoint now = TimePoint() + std::chrono::hours(1);
  StallMessage message;
  message.kind = StallMessage::Kind::kAsk;
  EXPECT_TRUE(ranks[1].watch.receive(0, message.encode(), now));
  message.kind = StallMessage::Kind::kFound;
  EXPECT_TRUE(ranks[0].watch.receive(1, message.encode(), now));
  EXPECT_TRUE(ranks[1].watch.receive(2, message.encode(), now));
  EXPECT_TRUE(ranks[0].watch.receive(1, ConstBytes(), now));
  auto torn = message.encode();
  torn.pop_back();
  EXPECT_TRUE(ranks[1].watch.receive(0, torn, now));
}

}  // namespace
}  // namespace ringdist
