// OpExecution without its group, its lane and a network, which the test replaces.
#include "engine/op/op_execution.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <random>

#include "codec/codec.h"
#include "engine/op/fake_execution_delegate.h"

namespace ringdist::test {
namespace {

constexpr size_t kElements = 5000;  // 20 segments

std::vector<float> values(int rank, size_t count = kElements) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<float>((i * 7 + rank * 31) % 64);
  return out;
}

class Ranks {
 public:
  explicit Ranks(int size, int64_t memory_limit = 1 << 24, const std::string& algorithm = "") {
    for (int rank = 0; rank < size; ++rank)
      ranks_.push_back(
          std::make_unique<OneRank>(rank, size, values(rank), memory_limit, algorithm));
  }
  OneRank& operator[](int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(ranks_.size()); }

  // Delivers one message or completes one send. Returns false if there is none.
  bool step(std::mt19937& random) {
    std::vector<std::function<void()>> choices;
    for (auto& from : ranks_) {
      for (auto& [to, queue] : from->delegate.sent)
        if (!queue.empty())
          choices.emplace_back([this, to = to, &queue] {
            const FakeExecutionDelegate::Message message = std::move(queue.front());
            queue.pop_front();
            (*this)[to].receive(message);
          });
      for (size_t i = 0; i < from->delegate.send_ids.size(); ++i)
        choices.emplace_back([&from, i] {
          from->delegate.end_send(i);
          from->delegate.work();
        });
    }
    if (choices.empty()) return false;
    choices[random() % choices.size()]();
    return true;
  }

 private:
  std::vector<std::unique_ptr<OneRank>> ranks_;
};

std::shared_ptr<const CodecMap> one_part(const char* codec, int size) {
  auto out = std::make_shared<CodecMap>();
  out->parts.push_back(
      {0, static_cast<int64_t>(kElements), parse_codec_pair(codec, size).value(), nullptr});
  return out;
}

// Messages and completions come in any order. Only messages of the same pair of ranks keep theirs.
TEST(OpExecution, EndsWellInAnyOrder) {
  const auto seed = std::random_device{}();
  std::printf("seed %u\n", seed);
  std::mt19937 random(seed);
  for (const char* codec : {"", "int8"}) {
    for (const std::string algorithm : {"ring", "direct"}) {
      for (const int size : {2, 3}) {
        // Tests with plenty of memory for grants, and with memory for the guaranteed slot only.
        for (const int64_t memory : {1 << 24, 1}) {
          SCOPED_TRACE(algorithm + " " + codec + " " + std::to_string(size));
          Ranks ranks(size, memory, algorithm);
          const bool coded = *codec != '\0';
          for (int rank = 0; rank < size; ++rank) {
            ranks[rank].delegate.copies = random() % 2 != 0;
            ranks[rank].start(coded ? one_part(codec, size) : nullptr);
          }
          while (ranks.step(random)) {
          }
          for (int rank = 0; rank < size; ++rank) {
            ASSERT_TRUE(ranks[rank].done()) << ranks[rank].run->dump();
            ASSERT_TRUE(ranks[rank].delegate.failures.empty());
            EXPECT_EQ(ranks[rank].data, ranks[0].data);
            EXPECT_EQ(ranks[rank].progress.grants.granted(), 0);
            EXPECT_EQ(ranks[rank].progress.completions.out(), 0u);
          }
          if (coded) continue;
          for (size_t i = 0; i < kElements; ++i) {
            float sum = 0;
            for (int rank = 0; rank < size; ++rank) sum += values(rank)[i];
            ASSERT_EQ(ranks[0].data[i], sum) << i;
          }
        }
      }
    }
  }
}

// Delivers all messages in order, and completes no send.
void deliver_all(Ranks& ranks) {
  for (bool any = true; any;) {
    any = false;
    for (int from = 0; from < ranks.size(); ++from)
      for (int to = 0; to < ranks.size(); ++to)
        for (auto& queue = ranks[from].delegate.sent[to]; !queue.empty(); any = true) {
          const FakeExecutionDelegate::Message message = std::move(queue.front());
          queue.pop_front();
          ranks[to].receive(message);
        }
  }
}

// A transport that copies is given the memory to write to. In "direct", this applies to the 7
// segments of each rank's shard that go to several peers. In "ring", it applies to sums that are
// stored directly where they are sent from.
TEST(OpExecution, WritesWhatWouldBeCopiedWhereItLeavesFrom) {
  for (const std::string algorithm : {"direct", "ring"}) {
    for (const bool copies : {false, true}) {
      SCOPED_TRACE(algorithm);
      Ranks ranks(3, 1 << 24, algorithm);
      for (int rank = 0; rank < ranks.size(); ++rank) {
        ranks[rank].delegate.copies = copies;
        ranks[rank].start();
      }
      std::mt19937 random(1);
      while (ranks.step(random)) {
      }
      for (int rank = 0; rank < ranks.size(); ++rank) {
        ASSERT_TRUE(ranks[rank].done());
        EXPECT_EQ(ranks[rank].data, ranks[0].data);
        const int reservations = ranks[rank].delegate.reservations;
        if (algorithm == "direct")
          EXPECT_EQ(reservations, copies ? 7 : 0);
        else
          EXPECT_EQ(reservations > 0, copies);
      }
    }
  }
}

TEST(OpExecution, IsNotDoneBeforeItsSendsHaveEnded) {
  Ranks ranks(2, 1 << 24, "direct");
  for (int rank : {0, 1}) ranks[rank].start();
  deliver_all(ranks);
  while (!ranks[0].delegate.send_ids.empty()) {
    EXPECT_FALSE(ranks[0].done());
    ranks[0].delegate.end_send(ranks[0].delegate.send_ids.size() - 1);  // the last one first
    ranks[0].delegate.work();
    deliver_all(ranks);
  }
  EXPECT_TRUE(ranks[0].done());
}

TEST(OpExecution, TicketsThatComeHomeLateAreNobodys) {
  for (const bool coded : {false, true}) {
    SCOPED_TRACE(coded ? "coded" : "plain");
    Ranks ranks(2);
    OneRank& rank = ranks[0];
    rank.start(coded ? one_part("int8", 2) : nullptr);
    ASSERT_FALSE(rank.delegate.send_ids.empty());
    const std::weak_ptr<Op> op = rank.run->op();
    rank.run->stop();
    rank.run.reset();
    EXPECT_TRUE(rank.progress.work.empty());
    EXPECT_EQ(op.expired(), coded) << "of tensors the transport reads, unless they were encoded";
    const auto home = rank.progress.completions.complete(rank.delegate.send_ids.front());
    ASSERT_TRUE(home);
    EXPECT_EQ(home->what.run, nullptr);
    rank.delegate.send_ids.pop_front();
    while (!rank.delegate.send_ids.empty()) rank.delegate.end_send(0);
    EXPECT_EQ(rank.progress.completions.out(), 0u);
  }
}

// A peer that has ended has all that it needs, so the OpExecution must not wait for its
// confirmations.
TEST(OpExecution, SendsToWhoIsGoneNeedNotEnd) {
  Ranks ranks(2, 1 << 24, "direct");
  for (int rank : {0, 1}) ranks[rank].start();
  deliver_all(ranks);
  while (!ranks[1].delegate.send_ids.empty()) {
    ranks[1].delegate.end_send(0);
    ranks[1].delegate.work();
    deliver_all(ranks);
  }
  ASSERT_TRUE(ranks[1].done());
  deliver_all(ranks);
  ASSERT_FALSE(ranks[0].done());
  EXPECT_FALSE(ranks[0].run->has_unsent_to(1)) << "all has been sent";
  EXPECT_FALSE(ranks[0].run->waits_for(1));
  ranks[0].delegate.gone_ranks = {1};
  ranks[0].run->complete_sends_to(1);
  ranks[0].delegate.work();
  EXPECT_TRUE(ranks[0].done());
  while (!ranks[0].delegate.send_ids.empty())
    ranks[0].delegate.end_send(0, Error(ErrorKind::kPeerLost, "late"));
  EXPECT_TRUE(ranks[0].delegate.lost.empty());
}

TEST(OpExecution, ASendThatFailsBreaksTheConnectionUnlessThePeerIsGone) {
  Ranks ranks(2);
  ranks[0].start();
  ASSERT_GE(ranks[0].delegate.send_ids.size(), 2u);
  ranks[0].delegate.gone_ranks = {1};
  ranks[0].delegate.end_send(0, Error(ErrorKind::kPeerLost, "gone"));
  EXPECT_TRUE(ranks[0].delegate.lost.empty());
  ranks[0].delegate.gone_ranks.clear();
  ranks[0].delegate.end_send(0, Error(ErrorKind::kPeerLost, "broken"));
  EXPECT_EQ(ranks[0].delegate.lost.at(1).message(), "broken");
}

FakeExecutionDelegate::Message first_data(OneRank& from, int to) {
  const auto& queue = from.delegate.sent[to];
  const auto data = std::ranges::find_if(
      queue, [](const auto& message) { return message.header.type == MessageType::kData; });
  EXPECT_NE(data, queue.end());
  return *data;
}

// Tests all invalid messages that a peer may send about an edge.
TEST(OpExecution, RefusesWhatIsNotItsOwn) {
  struct Case {
    const char* what;
    std::function<void(FakeExecutionDelegate::Message&)> change;
    const char* text;
  };
  const std::vector<Case> cases{
      {"another edge", [](auto& message) { message.header.edge = 77; }, "does not have"},
      {"beyond its last", [](auto& message) { message.header.segment = 1000; }, "out of range"},
      {"too short", [](auto& message) { message.payload.pop_back(); }, "bytes instead of"},
      {"another edge's request",
       [](auto& message) {
         message.header.type = MessageType::kRequest;
         message.header.edge = 77;
       },
       "a request for an edge"},
      {"another edge's grant",
       [](auto& message) {
         message.header.type = MessageType::kGrant;
         message.header.edge = 77;
       },
       "a grant for an edge"},
      {"another count",
       [](auto& message) {
         message.header.fingerprint.of_edge = 1;
         message.header.fingerprint.count = 3;
       },
       "which expects"},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    Ranks ranks(2);
    for (int rank : {0, 1}) ranks[rank].start();
    FakeExecutionDelegate::Message message = first_data(ranks[1], 0);
    one.change(message);
    ranks[0].receive(message);
    ASSERT_EQ(ranks[0].delegate.failures.size(), 1u);
    const Error& error = ranks[0].delegate.failures[0];
    EXPECT_NE(error.message().find(one.text), std::string::npos) << error.what();
    EXPECT_EQ(error.ranks(), std::vector{1});
    EXPECT_TRUE(error.message().starts_with("all_reduce #1")) << error.what();
  }
}

TEST(OpExecution, RefusesASegmentThatCameBefore) {
  Ranks ranks(2);
  for (int rank : {0, 1}) ranks[rank].start();
  const FakeExecutionDelegate::Message message = first_data(ranks[1], 0);
  ranks[0].receive(message);
  ASSERT_TRUE(ranks[0].delegate.failures.empty());
  ranks[0].receive(message);
  ASSERT_EQ(ranks[0].delegate.failures.size(), 1u);
  EXPECT_NE(ranks[0].delegate.failures[0].message().find("came before"), std::string::npos);
}

// The eager credit limits data that is sent without a grant. Credit that returns wakes the step.
TEST(OpExecution, StopsAtTheEarlyCreditAndGoesOnWhenItReturns) {
  Ranks ranks(2, /*memory_limit=*/1);
  OneRank& rank = ranks[0];
  rank.start();
  EXPECT_EQ(rank.delegate.count(1, MessageType::kData), EagerCredit::kSegments);
  EXPECT_EQ(rank.delegate.count(1, MessageType::kRequest), 1);
  ASSERT_FALSE(rank.delegate.blocked.empty());
  MessageHeader credit{};
  credit.type = MessageType::kCredit;
  credit.source = 1;
  credit.credit = kRunSegment;
  rank.receive({credit, {}});
  EXPECT_EQ(rank.delegate.count(1, MessageType::kData), EagerCredit::kSegments + 1);
}

// Without memory for grants, only the oldest op of the group proceeds. The next one proceeds when
// it is the oldest.
TEST(OpExecution, OnlyTheOldestHasASlotWhereThereIsNoMemory) {
  Ranks ranks(2, /*memory_limit=*/1);
  OneRank& rank = ranks[0];
  rank.make_execution();
  rank.run->start();
  MessageHeader request{};
  request.type = MessageType::kRequest;
  request.source = 1;
  rank.receive({request, {}});
  EXPECT_EQ(rank.delegate.count(1, MessageType::kGrant), 0);
  rank.run->grant_waiting();
  EXPECT_EQ(rank.delegate.count(1, MessageType::kGrant), 0);
  rank.delegate.oldest = rank.run.get();
  rank.run->grant_waiting();
  EXPECT_EQ(rank.delegate.count(1, MessageType::kGrant), 1);
}

TEST(OpExecution, SaysHowFarItHasCome) {
  Ranks ranks(2, 1 << 24, "one_shot");
  const std::string text = ranks[0].start().dump();
  EXPECT_TRUE(text.starts_with("all_reduce #1 (float32, 5000 elements, SUM)")) << text;
  EXPECT_NE(text.find("step 0: to rank 1, sent 4 of 20, completed 0"), std::string::npos) << text;
  EXPECT_NE(text.find("asked for more"), std::string::npos) << text;
}

}  // namespace
}  // namespace ringdist::test
