// Revoked payloads: an OpExecution that ends revokes the data that it has in flight, and a
// receiver ignores revoked data.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "engine/op/fake_execution_delegate.h"

namespace ringdist::test {
namespace {

constexpr size_t kWithdrawnCount = 5000;  // 20 segments

OneRank make(int rank) {
  return {rank, 2, std::vector<float>(kWithdrawnCount, 1.0f), 1 << 24, "direct"};
}

// Returns the first data message that the rank has sent to the other.
FakeExecutionDelegate::Message first_data(OneRank& rank) {
  auto& queue = rank.delegate.sent[1 - rank.delegate.flow.rank];
  const auto it = std::ranges::find_if(
      queue, [](const auto& message) { return message.header.type == MessageType::kData; });
  EXPECT_NE(it, queue.end());
  return *it;
}

TEST(Withdrawn, AreAllThatARunHasOnItsWayWhenItEnds) {
  OneRank rank = make(0);
  rank.start();
  ASSERT_GT(rank.delegate.send_ids.size(), 1u);
  rank.delegate.end_send(0);
  std::vector<std::pair<int, SendId>> expected;
  for (const SendId send_id : rank.delegate.send_ids) expected.emplace_back(1, send_id);
  EXPECT_TRUE(rank.delegate.withdrawn.empty());
  rank.run->stop();
  EXPECT_EQ(rank.delegate.withdrawn, expected);
  rank.run->stop();
  EXPECT_EQ(rank.delegate.withdrawn, expected);
  EXPECT_EQ(rank.progress.completions.out(), expected.size()) << "their memory is held";
}

TEST(Withdrawn, IsNothingOfARunThatEndsWell) {
  OneRank ranks[] = {make(0), make(1)};
  for (OneRank& rank : ranks) rank.start();
  for (bool any = true; any;) {
    any = false;
    for (OneRank& rank : ranks) {
      for (auto& queue = rank.delegate.sent[1 - rank.delegate.flow.rank]; !queue.empty();
           any = true) {
        const FakeExecutionDelegate::Message message = std::move(queue.front());
        queue.pop_front();
        ranks[1 - rank.delegate.flow.rank].receive(message);
      }
      for (; !rank.delegate.send_ids.empty(); any = true) {
        rank.delegate.end_send(0);
        rank.delegate.work();
      }
    }
  }
  for (OneRank& rank : ranks) {
    EXPECT_TRUE(rank.done());
    EXPECT_TRUE(rank.delegate.withdrawn.empty());
    EXPECT_EQ(rank.data, std::vector<float>(kWithdrawnCount, 2.0f));
  }
}

// Covers data that could be used at once and data that had to wait.
TEST(Withdrawn, DoesNotCountWhereItArrives) {
  OneRank sender = make(0);
  sender.start();
  const FakeExecutionDelegate::Message message = first_data(sender);
  for (const bool at_once : {true, false}) {
    OneRank receiver = make(1);
    receiver.start();
    const int sent = receiver.delegate.count(0, MessageType::kData);
    MessageHeader header = message.header;
    if (!at_once) ++header.segment;
    const std::atomic<uint32_t> word = 1;
    receiver.run->on_data(header, Payload(message.payload, word, 1));
    receiver.delegate.work();
    EXPECT_EQ(receiver.delegate.count(0, MessageType::kData), sent);
    EXPECT_EQ(receiver.statistics.messages_kept, 0u);
    EXPECT_EQ(receiver.run->wrote(), at_once) << "what was there may be gone";
    EXPECT_NE(receiver.run->dump().find("segment 0 of 10, kept 0"), std::string::npos)
        << receiver.run->dump();
    EXPECT_TRUE(receiver.delegate.failures.empty()) << "its sender says why";
    receiver.run->stop();
  }
}

}  // namespace
}  // namespace ringdist::test
