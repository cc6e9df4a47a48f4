// Messages by way of mailboxes: data of any size, and events that end the waiting for it.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cuda/stream/host_mailboxes.h"
#include "support/fake_cuda.h"
#include "support/fake_runner_delegate.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

using SentBytes = std::vector<std::byte>;

class OneMemory final : public GroupSharedMemory {
 public:
  OneMemory(int ranks, size_t bytes) : memory_(static_cast<size_t>(ranks), SentBytes(bytes)) {}
  Bytes of_rank(int rank) const override { return memory_[static_cast<size_t>(rank)]; }

 private:
  mutable std::vector<SentBytes> memory_;
};

class MailboxLinkTest : public testing::Test {
 protected:
  struct Rank {
    std::unique_ptr<FakeRunnerDelegate> group;
    std::shared_ptr<HostMailboxes> mailboxes;
    void* stream;
  };
  void make(int size) {
    const auto memory = std::make_shared<OneMemory>(size, (size_t{32} << 20) + (size_t{1} << 16));
    for (int rank = 0; rank < size; ++rank) {
      auto group = std::make_unique<FakeRunnerDelegate>(rank, size);
      group->memory = memory;
      auto mailboxes = HostMailboxes::make(cuda_, *group, TimePoint::max());
      ASSERT_TRUE(mailboxes.ok()) << mailboxes.error().what();
      ASSERT_NE(mailboxes.value(), nullptr);
      ranks_.push_back({std::move(group), mailboxes.value(), streams_.make()});
    }
  }
  Rank& at(int rank) { return ranks_[static_cast<size_t>(rank)]; }
  // Moves all messages in one exchange. `sent` is indexed by sender, receiver and position.
  void move(std::vector<std::vector<std::vector<SentBytes>>>& sent) {
    auto got = sent;
    for (auto& of_rank : got)
      for (auto& of_pair : of_rank)
        for (SentBytes& message : of_pair) message.assign(message.size(), std::byte{0xee});
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      MailboxLink link(*ranks_[rank].mailboxes, ranks_[rank].stream);
      ASSERT_FALSE(link.begin());
      for (size_t peer = 0; peer < sent.size(); ++peer) {
        for (SentBytes& message : sent[rank][peer])
          ASSERT_FALSE(
              link.send(static_cast<int>(peer), {message.data(), message.size()}, nullptr));
        for (SentBytes& message : got[peer][rank])
          ASSERT_FALSE(
              link.receive(static_cast<int>(peer), {message.data(), message.size()}, nullptr));
      }
      ASSERT_FALSE(link.end());
    }
    ASSERT_FALSE(streams_.progress()) << "streams that wait for ever";
    EXPECT_EQ(got, sent);
  }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  std::vector<Rank> ranks_;
};

TEST_F(MailboxLinkTest, MovesMessagesOfAnySizeInAnyNumber) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  constexpr size_t kRanks = 3;
  make(kRanks);
  const size_t most = at(0).mailboxes->most();
  const std::vector<size_t> sizes{1, 17, 4096, most - 1, most, most + 1, 2 * most + 5};
  for (int exchange = 0; exchange < 6; ++exchange) {
    std::vector sent(kRanks, std::vector<std::vector<SentBytes>>(kRanks));
    for (size_t from = 0; from < kRanks; ++from)
      for (size_t to = 0; to < kRanks; ++to)
        for (size_t i = from == to ? 3 : random() % 3; i < 3; ++i) {
          SentBytes message(sizes[random() % sizes.size()]);
          for (size_t k = 0; k < message.size(); k += 1 + k / 7)
            message[k] = static_cast<std::byte>(random());
          sent[from][to].push_back(std::move(message));
        }
    move(sent);
  }
}

// A device can thus copy in both directions at once.
TEST_F(MailboxLinkTest, WhatIsTakenDoesNotKeepBackWhatIsLeft) {
  make(2);
  SentBytes sent(3 * at(0).mailboxes->most(), std::byte{5}), got(sent.size());
  SentBytes answer(100, std::byte{6}), answered(100);
  MailboxLink first(*at(0).mailboxes, at(0).stream);
  ASSERT_FALSE(first.begin());
  ASSERT_FALSE(first.send(1, {sent.data(), sent.size()}, nullptr));
  ASSERT_FALSE(first.receive(1, {answered.data(), answered.size()}, nullptr));
  ASSERT_FALSE(first.end());
  MailboxLink second(*at(1).mailboxes, at(1).stream);
  ASSERT_FALSE(second.begin());
  ASSERT_FALSE(second.receive(0, {got.data(), got.size()}, nullptr));
  ASSERT_FALSE(second.end());
  EXPECT_TRUE(streams_.progress()) << "the answer is yet to come";
  EXPECT_TRUE(streams_.idle(at(1).stream));
  EXPECT_EQ(got, sent);
  MailboxLink third(*at(1).mailboxes, at(1).stream);
  ASSERT_FALSE(third.begin());
  ASSERT_FALSE(third.send(0, {answer.data(), answer.size()}, nullptr));
  ASSERT_FALSE(third.end());
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(answered, answer);
}

TEST_F(MailboxLinkTest, AnAbortEndsWhatWaitsAndWhatComesLater) {
  make(2);
  SentBytes message(100);
  MailboxLink link(*at(0).mailboxes, at(0).stream);
  ASSERT_FALSE(link.begin());
  ASSERT_FALSE(link.receive(1, {message.data(), message.size()}, nullptr));
  ASSERT_FALSE(link.end());
  EXPECT_TRUE(streams_.progress()) << "nothing has been left for it";
  at(0).mailboxes->abort();
  EXPECT_FALSE(streams_.progress());
  EXPECT_TRUE(at(0).mailboxes->ended());
  MailboxLink later(*at(0).mailboxes, at(0).stream);
  ASSERT_FALSE(later.begin());
  ASSERT_FALSE(later.send(1, {message.data(), message.size()}, nullptr));
  EXPECT_EQ(later.end().kind(), ErrorKind::kAborted);
}

TEST_F(MailboxLinkTest, AnAbortHoldsAgainstOneWhoDoesNotKnowOfIt) {
  make(2);
  SentBytes message(100);
  for (int i = 0; i < 3; ++i) {
    MailboxLink link(*at(0).mailboxes, at(0).stream);
    ASSERT_FALSE(link.begin());
    ASSERT_FALSE(link.receive(1, {message.data(), message.size()}, nullptr));
    ASSERT_FALSE(link.end());
  }
  at(0).mailboxes->abort();
  MailboxLink other(*at(1).mailboxes,
                    at(1).stream);  // overwrites the mark of the abort
  ASSERT_FALSE(other.begin());
  ASSERT_FALSE(other.send(0, {message.data(), message.size()}, nullptr));
  ASSERT_FALSE(other.end());
  while (streams_.progress()) at(0).mailboxes->reassert_abort();
  EXPECT_TRUE(at(1).mailboxes->ended()) << "what the other has taken since may be anything";
}

TEST_F(MailboxLinkTest, StreamsOfTwoDevicesTakeTurns) {
  make(2);
  void* const second = streams_.make();
  SentBytes a(100, std::byte{1}), b(100, std::byte{2}), got(100);
  bool open = false;
  streams_.push(at(0).stream, {[&] { return open; }, {}});
  for (const auto& [stream, message] : {std::pair(at(0).stream, &a), std::pair(second, &b)}) {
    MailboxLink link(*at(0).mailboxes, stream);
    ASSERT_FALSE(link.begin());
    ASSERT_FALSE(link.send(1, {message->data(), message->size()}, nullptr));
    ASSERT_FALSE(link.end());
  }
  EXPECT_TRUE(streams_.progress());
  MailboxLink link(*at(1).mailboxes, at(1).stream);
  ASSERT_FALSE(link.begin());
  ASSERT_FALSE(link.receive(0, {got.data(), got.size()}, nullptr));
  ASSERT_FALSE(link.end());
  EXPECT_TRUE(streams_.progress()) << "the second overtook the first";
  open = true;
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(got, a);
}

TEST_F(MailboxLinkTest, ThereAreNoneWhereARankCannotReachThem) {
  FakeRunnerDelegate group(0, 2);  // shares no memory
  EXPECT_EQ(HostMailboxes::make(cuda_, group, TimePoint::max()).value(), nullptr);
  group.memory = std::make_shared<OneMemory>(2, (size_t{32} << 20) + (size_t{1} << 16));
  group.others = [](auto& said) { said[1][0] = std::byte{0}; };  // rank 1 cannot pin its memory
  EXPECT_EQ(HostMailboxes::make(cuda_, group, TimePoint::max()).value(), nullptr);
  group.others = nullptr;
  cuda_.fail_next("pin");
  EXPECT_EQ(HostMailboxes::make(cuda_, group, TimePoint::max()).value(), nullptr);
  FakeRunnerDelegate alone(0, 1);
  EXPECT_EQ(HostMailboxes::make(cuda_, alone, TimePoint::max()).value(), nullptr);
}

}  // namespace
}  // namespace ringdist::gpu
