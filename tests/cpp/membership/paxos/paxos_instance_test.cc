#include "membership/paxos/paxos_instance.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ringdist {
namespace {

class FakePaxosDelegate final : public PaxosDelegate {
 public:
  struct Sent {
    int rank;
    ConsensusMessage message;
  };

  void send(int rank, ConsensusMessage message) override {
    sent.push_back({rank, std::move(message)});
  }
  PromiseInfo stop_and_report() override {
    ++stops;
    return info;
  }
  void read_vote(const Ballot& ballot) override { reads.push_back(ballot); }
  void cast_vote(const std::optional<Accepted>& before, const Accepted& vote) override {
    casts.emplace_back(before, vote);
  }

  // Returns the ranks to which a message of this kind was sent, in order, and clears the record.
  std::vector<int> take(ConsensusMessageKind kind) {
    std::vector<int> out;
    for (const Sent& one : sent)
      if (one.message.kind == kind) out.push_back(one.rank);
    sent.clear();
    return out;
  }

  std::vector<Sent> sent;
  PromiseInfo info{5, "old", true, "new", {}};
  int stops = 0;
  std::vector<Ballot> reads;
  std::vector<std::pair<std::optional<Accepted>, Accepted>> casts;
};

class PaxosInstanceTest : public testing::Test {
 protected:
  static constexpr uint64_t kNonce = 77;

  void make(int size, int rank) {
    Voters voters{{3, kNonce}, {}};
    for (int i = 0; i < size; ++i) voters.members.push_back(static_cast<ProcessId>(100 + i));
    paxos_.emplace(std::move(voters), rank, timeouts_, delegate_);
  }
  void begin() {
    paxos_->begin(now_);
    paxos_->tick(now_);
  }
  // Ticks at the times that next() returns.
  void pass(Duration time) {
    const TimePoint end = now_ + time;
    while (paxos_->next() && *paxos_->next() <= end) {
      now_ = std::max(now_, *paxos_->next());
      paxos_->tick(now_);
    }
    now_ = end;
  }
  void hear(int from, ConsensusMessage message) { paxos_->on_message(from, message, now_); }
  ConsensusMessage message(ConsensusMessageKind kind, const Ballot& ballot) {
    ConsensusMessage out;
    out.kind = kind;
    out.ballot = ballot;
    if (kind == ConsensusMessageKind::kPromise) out.info = delegate_.info;
    return out;
  }
  Decision value(const Ballot& proposed, std::vector<ProcessId> members) {
    Decision out;
    out.generation = 4;
    out.after = kNonce;
    out.proposed = proposed;
    out.survivor_count = static_cast<uint32_t>(members.size());
    out.members = std::move(members);
    return out;
  }
  const Decision& decided() { return paxos_->decided()->value; }

  const PaxosTimeouts timeouts_;
  TimePoint now_{std::chrono::hours(1)};
  FakePaxosDelegate delegate_;
  std::optional<PaxosInstance> paxos_;
};

constexpr Ballot kFirst{1, 0};
using Ranks = std::vector<int>;
using Members = std::vector<ProcessId>;

TEST_F(PaxosInstanceTest, TheLowestRankAsksAtOnceAndDecidesWithAll) {
  make(3, 0);
  begin();
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kPrepare), (Ranks{1, 2}));
  delegate_.info.first_unfinished = 4;
  hear(1, message(ConsensusMessageKind::kPromise, kFirst));
  EXPECT_TRUE(delegate_.take(ConsensusMessageKind::kAccept).empty())
      << "a quorum, but rank 2 may answer";
  hear(2, message(ConsensusMessageKind::kPromise, kFirst));
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kAccept), (Ranks{1, 2}));
  hear(2, message(ConsensusMessageKind::kAccepted, kFirst));
  ASSERT_TRUE(paxos_->decided());
  EXPECT_TRUE(paxos_->decided()->mine);
  EXPECT_EQ(decided().members, (Members{100, 101, 102}));
  EXPECT_EQ(decided().first_unfinished, 4);
  EXPECT_EQ(decided().store, "old");
  EXPECT_TRUE(decided().follows({3, kNonce}));
}

TEST_F(PaxosInstanceTest, OthersLeaveItTheirTurn) {
  make(4, 2);
  begin();
  EXPECT_TRUE(delegate_.sent.empty());
  pass(2 * timeouts_.proposer_stagger);
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kPrepare), (Ranks{0, 1, 3}));
}

TEST_F(PaxosInstanceTest, WhoDoesNotAnswerIsGivenUpAfterTheSilence) {
  make(3, 0);
  begin();
  hear(1, message(ConsensusMessageKind::kPromise, kFirst));
  pass(timeouts_.reply_timeout - Milliseconds(1));
  EXPECT_TRUE(delegate_.take(ConsensusMessageKind::kAccept).empty());
  pass(timeouts_.resend + Milliseconds(1));
  EXPECT_FALSE(delegate_.take(ConsensusMessageKind::kAccept).empty());
  hear(1, message(ConsensusMessageKind::kAccepted, kFirst));
  ASSERT_TRUE(paxos_->decided());
  EXPECT_EQ(decided().members, (Members{100, 101}));
  EXPECT_EQ(decided().lost, (std::vector<LostMember>{{2, LostMember::Cause::kSilent}}));
}

// A voter may be given up long before the request to it, or long after it.
TEST_F(PaxosInstanceTest, TheReportOfADeathIsWaitedFor) {
  for (const bool is_asked_first : {false, true}) {
    make(3, 0);
    delegate_.sent.clear();
    if (is_asked_first) begin();
    if (!is_asked_first) paxos_->give_up(2, now_);
    pass(Milliseconds(1000));  // far more than the report may take
    if (!is_asked_first) begin();
    if (is_asked_first) paxos_->give_up(2, now_);
    hear(1, message(ConsensusMessageKind::kPromise, kFirst));
    pass(timeouts_.loss_report - Milliseconds(1));
    EXPECT_TRUE(delegate_.take(ConsensusMessageKind::kAccept).empty());
    paxos_->on_death(2, now_);
    hear(1, message(ConsensusMessageKind::kAccepted, kFirst));
    ASSERT_TRUE(paxos_->decided());
    EXPECT_EQ(decided().lost, (std::vector<LostMember>{{2, LostMember::Cause::kDied}}));
  }
}

TEST_F(PaxosInstanceTest, WhatAnotherHadAcceptedIsProposed) {
  make(3, 0);
  begin();
  for (const int rank : {1, 2}) {
    auto promise = message(ConsensusMessageKind::kPromise, kFirst);
    const Ballot ballot{0, rank};
    promise.accepted = Accepted{ballot, value(ballot, {100, 101, 102 + ProcessId(rank)})};
    hear(rank, promise);
  }
  const auto& sent = delegate_.sent.back().message;
  ASSERT_EQ(sent.kind, ConsensusMessageKind::kAccept);
  EXPECT_EQ(sent.decision->members, (Members{100, 101, 104})) << "of the later ballot";
}

TEST_F(PaxosInstanceTest, ADeathAfterTheBallotBeganAsksForAnother) {
  make(5, 0);
  for (const int rank : {2, 3}) paxos_->on_death(rank, now_);
  begin();
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kPrepare), (Ranks{1, 4}));
  hear(1, message(ConsensusMessageKind::kPromise, kFirst));
  hear(4, message(ConsensusMessageKind::kPromise, kFirst));
  hear(1, message(ConsensusMessageKind::kAccepted, kFirst));
  EXPECT_FALSE(paxos_->decided());
  delegate_.sent.clear();
  paxos_->on_death(4, now_);
  EXPECT_FALSE(paxos_->decided()) << "two of five, and rank 4 lived when the ballot began";
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kPrepare), Ranks{1});
  const Ballot second{2, 0};
  hear(1, message(ConsensusMessageKind::kPromise, second));
  hear(1, message(ConsensusMessageKind::kAccepted, second));
  EXPECT_TRUE(paxos_->decided());
}

TEST_F(PaxosInstanceTest, HalfCastsTheStoresVoteBeforeAnybodyAccepts) {
  make(2, 0);
  begin();
  pass(timeouts_.reply_timeout + timeouts_.resend);
  ASSERT_EQ(delegate_.reads.size(), 1U);
  delegate_.sent.clear();
  paxos_->on_vote_read(kFirst, std::optional<Accepted>(), now_);
  ASSERT_EQ(delegate_.casts.size(), 1U);
  EXPECT_FALSE(delegate_.casts[0].first) << "nothing was there";
  EXPECT_EQ(delegate_.casts[0].second.value.members, Members{100});
  EXPECT_TRUE(delegate_.take(ConsensusMessageKind::kAccept).empty());
  paxos_->on_vote_cast(kFirst, true, now_);
  ASSERT_TRUE(paxos_->decided());
  EXPECT_EQ(decided().members, Members{100});
}

TEST_F(PaxosInstanceTest, WhoComesSecondAtTheStoreTakesWhatIsThere) {
  make(2, 0);
  begin();
  pass(timeouts_.reply_timeout + timeouts_.resend);
  paxos_->on_vote_read(kFirst, std::optional<Accepted>(), now_);
  paxos_->on_vote_cast(kFirst, false, now_);
  EXPECT_FALSE(paxos_->decided());
  pass(timeouts_.proposal_timeout + timeouts_.resend);
  ASSERT_GE(delegate_.reads.size(), 2U);
  const Ballot again = delegate_.reads.back();
  Accepted theirs{{1, 1}, value({1, 1}, {101})};
  paxos_->on_vote_read(again, std::optional(theirs), now_);
  ASSERT_EQ(delegate_.casts.size(), 1U) << "a vote that leaves out a member without a word";
  theirs.value.lost = {{0, LostMember::Cause::kSilent}};
  paxos_->on_vote_read(again, std::optional(theirs), now_);
  ASSERT_EQ(delegate_.casts.size(), 2U);
  EXPECT_EQ(delegate_.casts[1].first->ballot, theirs.ballot);
  EXPECT_EQ(delegate_.casts[1].second.value, theirs.value);
  paxos_->on_vote_cast(again, true, now_);
  ASSERT_TRUE(paxos_->decided());
  EXPECT_EQ(decided().members, Members{101}) << "without this one";
}

TEST_F(PaxosInstanceTest, AStoreThatDoesNotAnswerIsAskedAgain) {
  make(2, 0);
  begin();
  pass(timeouts_.reply_timeout + timeouts_.resend);
  paxos_->on_vote_read(kFirst, Error(ErrorKind::kSystem, "gone"), now_);
  EXPECT_FALSE(paxos_->decided());
  pass(timeouts_.proposal_timeout + 2 * timeouts_.resend);
  EXPECT_EQ(delegate_.reads.size(), 2U);
}

TEST_F(PaxosInstanceTest, AVoterKeepsToTheLaterBallot) {
  make(3, 1);
  hear(2, message(ConsensusMessageKind::kPrepare, {2, 2}));
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kPromise), Ranks{2});
  EXPECT_EQ(delegate_.stops, 1) << "its ops have ended";
  hear(0, message(ConsensusMessageKind::kPrepare, {1, 0}));
  ASSERT_EQ(delegate_.sent.size(), 1U);
  EXPECT_EQ(delegate_.sent[0].message.kind, ConsensusMessageKind::kRefuse);
  EXPECT_EQ(delegate_.sent[0].message.ballot, (Ballot{2, 2}));
  delegate_.sent.clear();
  auto accept = message(ConsensusMessageKind::kAccept, {1, 0});
  accept.decision = value({1, 0}, {100, 101, 102});
  hear(0, accept);
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kRefuse), Ranks{0});
}

TEST_F(PaxosInstanceTest, WhoIsOvertakenTriesLater) {
  make(3, 0);
  begin();
  delegate_.sent.clear();
  hear(1, message(ConsensusMessageKind::kRefuse, {4, 2}));
  pass(Milliseconds(100));
  ASSERT_FALSE(delegate_.sent.empty());
  EXPECT_EQ(delegate_.sent[0].message.ballot, (Ballot{5, 0}));
}

// Messages of rank 2 arrive here, but no answer reaches rank 2.
TEST_F(PaxosInstanceTest, WhoHearsNothingIsNotWaitedFor) {
  make(3, 0);
  const Ballot theirs{3, 2};
  hear(2, message(ConsensusMessageKind::kPrepare, theirs));
  for (int i = 0; i < 20; ++i) {
    pass(timeouts_.resend);
    hear(2, message(ConsensusMessageKind::kPrepare, theirs));
  }
  const auto asked = delegate_.take(ConsensusMessageKind::kPrepare);
  EXPECT_FALSE(asked.empty()) << "long before the silence has passed";
}

TEST_F(PaxosInstanceTest, DeathsTravelWithTheAnswers) {
  make(4, 1);
  paxos_->on_death(3, now_);
  hear(0, message(ConsensusMessageKind::kPrepare, kFirst));
  ASSERT_EQ(delegate_.sent.size(), 1U);
  EXPECT_EQ(delegate_.sent[0].message.dead, Ranks{3});
  delegate_.sent.clear();
  paxos_->on_death(2, now_);
  EXPECT_EQ(delegate_.take(ConsensusMessageKind::kReport), Ranks{0}) << "whoever waits for it";
}

TEST_F(PaxosInstanceTest, SaysWhoIsMissing) {
  make(4, 0);
  begin();
  paxos_->on_death(3, now_);
  pass(timeouts_.reply_timeout);
  const std::string text = paxos_->describe(now_);
  EXPECT_EQ(text,
            "no quorum: 1 of 4 voters, 3 needed; rank 1 is silent; rank 2 is silent; rank 3 died");
}

}  // namespace
}  // namespace ringdist
