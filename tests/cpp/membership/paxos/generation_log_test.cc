#include "membership/paxos/generation_log.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace ringdist {
namespace {

class FakeGenerationLogDelegate final : public GenerationLogDelegate {
 public:
  void send(ProcessId to, const ConsensusMessage& message) override {
    sent.emplace_back(to, message);
  }
  bool is_near(ProcessId) override { return true; }
  bool send_near(ProcessId to, const ConsensusMessage& message) override {
    const bool fails = is_full || to == fails_for;
    if (!fails) send(to, message);
    return !fails;
  }
  PromiseInfo stop_and_report() override { return {1, "store", true, "", newcomers, formed, most}; }
  void read_vote(const Ballot&) override {}
  void cast_vote(const Ballot&, const std::optional<Accepted>&, const Accepted&) override {}
  void on_installed(const Decision& decision) override { installed.push_back(decision); }
  void on_begun() override { ++begun; }
  void on_excluded(const Decision& decision) override { excluded.push_back(decision); }

  std::deque<std::pair<ProcessId, ConsensusMessage>> sent;
  std::vector<Newcomer> newcomers;
  bool formed = true;
  uint32_t most = 0;
  std::vector<Decision> installed, excluded;
  int begun = 0;
  bool is_full = false;
  ProcessId fails_for = 0;
};

// Members with immediate, ordered delivery. Messages of members that are cut off are dropped.
class GenerationLogTest : public testing::Test {
 protected:
  void make(int size) {
    for (int i = 0; i < size; ++i) ids_.push_back(id(i));
    for (int i = 0; i < size; ++i)
      members_[id(i)] =
          std::make_unique<GenerationLog>(id(i), GenerationId{0, 1}, ids_, timeouts_, delegate(i));
  }
  static ProcessId id(int rank) { return static_cast<ProcessId>(10 + rank); }
  FakeGenerationLogDelegate& delegate(int rank) { return hosts_[id(rank)]; }
  GenerationLog& member(int rank) { return *members_.at(id(rank)); }

  void deliver() {
    for (bool any = true; any;) {
      any = false;
      for (auto& [from, delegate] : hosts_) {
        while (!delegate.sent.empty()) {
          const auto [to, message] = delegate.sent.front();
          delegate.sent.pop_front();
          any = true;
          if (cut_.contains(to) || cut_.contains(from)) continue;
          receive(from, to, message);
        }
      }
    }
  }
  void receive(ProcessId from, ProcessId to, const ConsensusMessage& message) {
    auto& one = members_[to];
    if (!one) {
      one = GenerationLog::admitted(to, message, timeouts_, hosts_[to], now_);
      for (const ProcessId dead : dead_)
        if (one) one->on_death(dead, now_);
    }
    if (one) one->on_message(from, message, now_);
  }
  void pass(Duration time) {
    for (const TimePoint end = now_ + time; now_ < end; now_ += Milliseconds(10)) {
      for (auto& [process, one] : members_)
        if (one && !cut_.contains(process)) one->tick(now_);
      deliver();
    }
  }
  void die(int rank) {
    members_.erase(id(rank));
    cut_.emplace(id(rank), true);
    dead_.push_back(id(rank));
    for (auto& [process, one] : members_)
      if (one) one->on_death(id(rank), now_);
  }

  const PaxosTimeouts timeouts_;
  TimePoint now_{std::chrono::hours(1)};
  std::vector<ProcessId> ids_;
  std::map<ProcessId, FakeGenerationLogDelegate> hosts_;
  std::map<ProcessId, std::unique_ptr<GenerationLog>> members_;
  std::map<ProcessId, bool> cut_;
  std::vector<ProcessId> dead_;
};

using State = GenerationLog::State;

TEST_F(GenerationLogTest, SurvivorsInstallTheSameAndBegin) {
  make(4);
  die(1);
  member(2).begin(now_);
  pass(Milliseconds(100));
  for (const int rank : {0, 2, 3}) {
    ASSERT_EQ(delegate(rank).installed.size(), 1U) << rank;
    EXPECT_EQ(delegate(rank).installed[0], delegate(0).installed[0]);
    EXPECT_EQ(delegate(rank).begun, 1);
    EXPECT_EQ(member(rank).generation(), member(0).generation());
    EXPECT_EQ(member(rank).members(), (std::vector<ProcessId>{id(0), id(2), id(3)}));
  }
  EXPECT_EQ(member(0).generation().number, 1U);
}

// A member on this host that dies after the decision need not receive it any more.
TEST_F(GenerationLogTest, AMemberThatDiesAfterTheDecisionHoldsUpNobody) {
  make(3);
  delegate(1).is_full = true;
  member(0).begin(now_);
  pass(Milliseconds(50));
  ASSERT_TRUE(delegate(1).installed.empty()) << "it could not tell those near it";
  delegate(1).fails_for = id(2);
  delegate(1).is_full = false;
  die(2);
  pass(Milliseconds(500));
  ASSERT_FALSE(delegate(1).installed.empty());
  EXPECT_EQ(member(1).generation(), member(0).generation());
}

// The member has voted and destroys its group before it installs the decision. The others must not
// wait for its reply timeout.
TEST_F(GenerationLogTest, AMemberThatLeavesAfterItsVoteHoldsUpNobody) {
  make(3);
  delegate(2).is_full = true;
  member(0).begin(now_);
  pass(Milliseconds(100));
  ASSERT_TRUE(delegate(2).installed.empty()) << "it could not tell those near it";
  for (const int rank : {0, 1}) {
    ASSERT_EQ(member(rank).members().size(), 3U);
    ASSERT_EQ(member(rank).state(), State::kInstalled);
  }
  cut_.emplace(id(2), true);
  for (const int rank : {0, 1}) member(rank).give_up(id(2), now_);
  pass(timeouts_.reply_timeout / 4);
  for (const int rank : {0, 1}) {
    EXPECT_EQ(member(rank).members(), (std::vector<ProcessId>{id(0), id(1)})) << rank;
    EXPECT_EQ(member(rank).state(), State::kBegun) << rank;
  }
}

TEST_F(GenerationLogTest, WhoWasCutOffHearsThatOthersWentOn) {
  make(3);
  cut_.emplace(id(2), true);
  member(0).begin(now_);
  pass(timeouts_.reply_timeout + std::chrono::seconds(1));
  EXPECT_EQ(member(0).members().size(), 2U);
  cut_.clear();
  EXPECT_EQ(member(2).state(), State::kBegun);
  member(2).begin(now_);
  pass(Milliseconds(200));
  ASSERT_EQ(delegate(2).excluded.size(), 1U);
  EXPECT_EQ(member(2).state(), State::kExcluded);
  EXPECT_EQ(delegate(2).excluded[0], delegate(0).installed[0]);
  member(2).begin(now_);
  pass(Milliseconds(200));
  EXPECT_TRUE(delegate(2).sent.empty()) << "it does nothing more";
}

TEST_F(GenerationLogTest, AnExcludedOneStillTellsWhatWasDecided) {
  make(3);
  cut_.emplace(id(2), true);
  cut_.emplace(id(1), true);
  member(0).begin(now_);
  cut_.erase(id(1));
  pass(timeouts_.reply_timeout + std::chrono::seconds(1));
  cut_.clear();
  member(2).begin(now_);
  pass(Milliseconds(200));
  ASSERT_EQ(member(2).state(), State::kExcluded);
  ConsensusMessage ask;
  ask.kind = ConsensusMessageKind::kAsk;
  ask.generation = {0, 1};
  member(2).on_message(id(1), ask, now_);
  ASSERT_EQ(delegate(2).sent.size(), 1U);
  EXPECT_EQ(delegate(2).sent[0].second.kind, ConsensusMessageKind::kDecided);
}

TEST_F(GenerationLogTest, ANewcomerComesLastAndBeginsWithTheOthers) {
  make(2);
  delegate(1).newcomers = {{id(7), "entry of 7"}, {id(5), "entry of 5"}};
  member(0).begin(now_);
  pass(Milliseconds(100));
  const std::vector<ProcessId> expected{id(0), id(1), id(5), id(7)};
  for (const int rank : {0, 1, 5, 7}) {
    EXPECT_EQ(member(rank).members(), expected) << rank;
    EXPECT_EQ(member(rank).state(), State::kBegun) << rank;
    EXPECT_EQ(delegate(rank).begun, 1) << rank;
  }
  EXPECT_EQ(delegate(0).installed[0].newcomers[0].entry, "entry of 5");
  EXPECT_TRUE(delegate(0).installed[0].needs_rendezvous);
}

TEST_F(GenerationLogTest, NewcomersComeWhileThereIsRoom) {
  make(2);
  delegate(0).newcomers = {{id(6), ""}};
  delegate(1).newcomers = {{id(7), ""}, {id(5), ""}};
  delegate(0).most = delegate(1).most = 3;
  member(0).begin(now_);
  pass(Milliseconds(100));
  EXPECT_EQ(member(0).members(), (std::vector<ProcessId>{id(0), id(1), id(5)}));
  EXPECT_EQ(delegate(0).installed.at(0).newcomers.size(), 1U);
}

TEST_F(GenerationLogTest, WhoseMembersKnowHowAllAreReachedNeedNotLookForThem) {
  make(3);
  member(0).begin(now_);
  pass(Milliseconds(100));
  for (const int rank : {0, 1, 2})
    EXPECT_FALSE(delegate(rank).installed.at(0).needs_rendezvous) << rank;
}

TEST_F(GenerationLogTest, OneThatHadNotFoundTheOthersHasAllLookForEachOther) {
  make(3);
  delegate(1).formed = false;
  member(0).begin(now_);
  pass(Milliseconds(100));
  for (const int rank : {0, 1, 2})
    EXPECT_TRUE(delegate(rank).installed.at(0).needs_rendezvous) << rank;
}

// One survivor died before any survivor began. The newcomers vote nevertheless.
TEST_F(GenerationLogTest, NewcomersVoteBeforeTheyHaveBegun) {
  make(2);
  delegate(0).newcomers = {{id(5), ""}, {id(6), ""}};
  member(0).begin(now_);
  member(0).tick(now_);
  // Delivers everything except the messages that a generation was installed or has begun.
  for (bool any = true; any;) {
    any = false;
    for (auto& [from, its] : hosts_)
      while (!its.sent.empty()) {
        const auto [to, message] = its.sent.front();
        its.sent.pop_front();
        any = true;
        if (message.kind != ConsensusMessageKind::kBegun &&
            message.kind != ConsensusMessageKind::kInstalled)
          receive(from, to, message);
      }
  }
  ASSERT_EQ(member(0).state(), State::kInstalled);
  die(1);
  pass(Milliseconds(300));
  const std::vector<ProcessId> expected{id(0), id(5), id(6)};
  for (const int rank : {0, 5, 6}) {
    EXPECT_EQ(member(rank).members(), expected) << rank;
    EXPECT_EQ(member(rank).state(), State::kBegun) << rank;
  }
}

// The member that was declared lost must be able to read the decision, even if the proposer dies.
TEST_F(GenerationLogTest, NothingIsInstalledBeforeThoseNearCanReadIt) {
  make(3);
  cut_.emplace(id(2), true);
  delegate(0).is_full = true;
  member(0).begin(now_);
  pass(timeouts_.reply_timeout + std::chrono::seconds(1));
  EXPECT_TRUE(delegate(0).installed.empty());
  EXPECT_EQ(member(0).generation().number, 0U);
  delegate(0).is_full = false;
  pass(2 * timeouts_.resend);
  ASSERT_EQ(delegate(0).installed.size(), 1U);
  EXPECT_EQ(member(0).state(), State::kBegun);
}

TEST_F(GenerationLogTest, MessagesOfAnotherDecisionAreDropped) {
  make(2);
  die(1);
  member(0).begin(now_);
  pass(Milliseconds(100));
  ASSERT_EQ(member(0).generation().number, 1U);
  delegate(0).sent.clear();
  ConsensusMessage stale;
  stale.kind = ConsensusMessageKind::kPrepare;
  stale.generation = {1, member(0).generation().nonce + 1};
  stale.ballot = {9, 1};
  member(0).on_message(id(1), stale, now_);
  EXPECT_TRUE(delegate(0).sent.empty());
  stale.generation.number = 2;
  member(0).on_message(id(1), stale, now_);
  ASSERT_EQ(delegate(0).sent.size(), 1U) << "of a later generation: what came of mine?";
  EXPECT_EQ(delegate(0).sent[0].second.kind, ConsensusMessageKind::kAsk);
}

}  // namespace
}  // namespace ringdist
