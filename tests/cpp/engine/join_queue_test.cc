#include <gtest/gtest.h>

#include <string>

#include "engine/membership/join_acceptor.h"

namespace ringdist {
namespace {

constexpr Duration kMoment = Milliseconds(10);
constexpr ProcessId kMember = 1;
constexpr ProcessId kOtherMember = 2;

class JoinQueueTest : public testing::Test {
 protected:
  // A join request with the right number. With `vouched`, the only member then vouches for it.
  bool request_join(ProcessId process, bool vouched = true) {
    const bool is_new = request_with(process, queue_.answer(process).number);
    if (vouched) queue_.vouch(process, kMember, 1, now_);
    return is_new;
  }
  bool request_with(ProcessId process, uint64_t number) {
    return queue_.request_join({process, "as sent"}, std::to_string(process), number, now_);
  }
  void accept(ProcessId process, const std::string& host = "a host") {
    queue_.accept({process, "an entry"}, host);
  }
  std::vector<ProcessId> waiting() const {
    std::vector<ProcessId> out;
    for (const Newcomer& one : queue_.waiting(now_)) out.push_back(one.process);
    return out;
  }

  JoinQueue queue_;
  TimePoint now_ = TimePoint(std::chrono::hours(1));
};

TEST_F(JoinQueueTest, OneIsLookedAtOnceAndThenWaits) {
  EXPECT_TRUE(request_join(7));
  EXPECT_FALSE(request_join(7));
  EXPECT_TRUE(waiting().empty()) << "nobody has seen it";
  accept(7);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
  EXPECT_EQ(queue_.waiting(now_)[0].entry, "an entry");
  accept(8);  // sent no join request
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
}

TEST_F(JoinQueueTest, StrangersDoNotFillIt) {
  EXPECT_FALSE(queue_.request_join({5, std::string(5000, 'x')}, "5", 0, now_)) << "too long";
  for (ProcessId process = 100; process < 1124; ++process) EXPECT_TRUE(request_join(process));
  EXPECT_FALSE(request_join(7)) << "full";
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(request_join(7)) << "the others send no more requests";
}

TEST_F(JoinQueueTest, OneSourceHasSixteen) {
  const auto from = [&](const std::string& source, ProcessId process) {
    return queue_.request_join({process, "an entry"}, source, 0, now_);
  };
  for (ProcessId process = 100; process < 116; ++process) EXPECT_TRUE(from("10.0.0.1", process));
  EXPECT_FALSE(from("10.0.0.1", 7));
  EXPECT_EQ(queue_.answer(7).number, 0u) << "it gets no answer";
  EXPECT_TRUE(from("10.0.0.2", 8));
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(from("10.0.0.1", 7)) << "the others send no more requests";
}

// Else each member could keep other newcomers of the host, and none would be vouched for by all.
TEST_F(JoinQueueTest, OfOneSourceAllComeThatCanBeReached) {
  for (const ProcessId first : {100, 116, 132}) {
    for (ProcessId process = first; process < first + 16; ++process) {
      EXPECT_TRUE(queue_.request_join({process, "an entry"}, "10.0.0.1", 0, now_)) << process;
      accept(process);
      (void)queue_.request_join({process, "an entry"}, "10.0.0.1", queue_.answer(process).number,
                                now_);
      queue_.vouch(process, kMember, 1, now_);
    }
  }
  EXPECT_EQ(waiting().size(), 48u);
}

// Each newcomer has its own number, which nobody can guess.
TEST_F(JoinQueueTest, OneRepeatsItsNumber) {
  EXPECT_TRUE(request_with(7, 0));
  EXPECT_TRUE(request_with(8, 0));
  EXPECT_EQ(queue_.answer(7).number, 0u) << "nobody has looked at it";
  accept(7);
  accept(8);
  const uint64_t number = queue_.answer(7).number;
  EXPECT_NE(number, 0u);
  EXPECT_NE(number, queue_.answer(8).number);
  EXPECT_FALSE(request_with(7, 0));
  EXPECT_FALSE(request_with(7, queue_.answer(8).number));
  EXPECT_FALSE(queue_.answer(7).repeated);
  EXPECT_FALSE(request_with(7, number));
  EXPECT_TRUE(queue_.answer(7).repeated);
  EXPECT_EQ(queue_.answer(7).number, number) << "it stays the same";
}

// One member cannot let a process in that the others do not reach.
TEST_F(JoinQueueTest, AllMembersVouchForIt) {
  request_join(7, /*vouched=*/false);
  accept(7);
  queue_.vouch(7, kMember, 2, now_);
  queue_.vouch(7, kMember, 2, now_);
  now_ += Milliseconds(200);
  request_join(7, false);
  EXPECT_FALSE(queue_.is_due(now_));
  EXPECT_TRUE(waiting().empty());
  queue_.vouch(7, kOtherMember, 2, now_);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
  queue_.vouch(9, kMember, 1, now_);  // sent no join request
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
}

TEST_F(JoinQueueTest, OneThatWasNotFoundIsLookedAtAgain) {
  EXPECT_TRUE(request_join(7));
  queue_.remove(7);
  EXPECT_TRUE(request_join(7));
}

TEST_F(JoinQueueTest, ThoseWhoWereStartedTogetherComeTogether) {
  request_join(7);
  accept(7);
  EXPECT_FALSE(queue_.is_due(now_));
  now_ += Milliseconds(100);
  request_join(7);
  request_join(9);
  accept(9);
  EXPECT_FALSE(queue_.is_due(now_));
  now_ += Milliseconds(100);
  EXPECT_TRUE(queue_.is_due(now_));
  EXPECT_EQ(waiting(), (std::vector<ProcessId>{7, 9}));
}

TEST_F(JoinQueueTest, OneThatKnocksNoMoreIsNotWaitedFor) {
  request_join(7);
  accept(7);
  now_ += std::chrono::seconds(1);
  EXPECT_TRUE(waiting().empty());
  EXPECT_FALSE(queue_.is_due(now_));
  EXPECT_FALSE(request_join(7)) << "it was seen";
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
  now_ += std::chrono::seconds(1);
  queue_.admit_members({}, now_);
  EXPECT_TRUE(request_join(7)) << "it was forgotten";
}

TEST_F(JoinQueueTest, WhoIsAMemberWaitsNoMore) {
  for (const ProcessId one : {7, 8}) {
    request_join(one);
    accept(one);
  }
  now_ += kMoment;
  queue_.admit_members({1, 2, 7}, now_);
  request_join(8);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{8});
}

// A join request alone is not enough: the members and the newcomer must reach each other.
TEST_F(JoinQueueTest, OneThatIsNotReachedWaits) {
  request_join(7, /*vouched=*/false);
  accept(7);
  now_ += Milliseconds(200);
  request_join(7, false);
  EXPECT_TRUE(waiting().empty());
  EXPECT_FALSE(queue_.is_due(now_));
  request_join(7);
  now_ += Milliseconds(200);
  EXPECT_TRUE(queue_.is_due(now_));
  queue_.admit_members({1, 2}, now_);
  EXPECT_TRUE(waiting().empty()) << "there are other members, which may not reach it";
  request_join(7);
  EXPECT_EQ(waiting(), std::vector<ProcessId>{7});
}

TEST_F(JoinQueueTest, AHostWhoseProcessesDoNotComeWaitsLongerEachTime) {
  ProcessId process = 7;
  const auto waits_for = [&](Duration pause) {
    ++process;
    queue_.fail("a host", now_);
    now_ += pause - kMoment;
    request_join(process);
    accept(process);
    EXPECT_TRUE(waiting().empty());
    request_join(99);
    accept(99, "another host");
    EXPECT_EQ(waiting(), std::vector<ProcessId>{99});
    now_ += 2 * kMoment;
    EXPECT_EQ(waiting(), (std::vector<ProcessId>{process, 99}));
    queue_.admit_members({process, 99}, now_);
  };
  for (const int seconds : {2, 4, 8, 16, 32, 60, 60}) waits_for(std::chrono::seconds(seconds));
  now_ += std::chrono::minutes(10);
  waits_for(std::chrono::seconds(2));
}

// The queue is limited, because a decision contains the entries of all newcomers.
TEST_F(JoinQueueTest, ManyComeByAndBy) {
  for (ProcessId one = 1; one <= 1000; ++one) {
    request_join(one);
    accept(one);
  }
  EXPECT_EQ(waiting().size(), 128u);
}

}  // namespace
}  // namespace ringdist
