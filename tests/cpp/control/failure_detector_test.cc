// Decisions of the failure detector on lost processes and on dials, with fake connections and a
// clock that the test moves.
#include "control/failure_detector.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <set>

#include "control/fake_connection_sender.h"
#include "control/fake_connection_view.h"
#include "os/epoll.h"

namespace ringdist::test {
namespace {

using Link = FakeConnectionView::Link;
constexpr Duration kTimeout = std::chrono::seconds(10);

class FailureDetectorTest : public testing::Test, protected FailureDetector::Delegate {
 protected:
  // Joins a group in which this process is rank 0.
  ControlGroup& join(const std::vector<int>& host, uint64_t nonce = kNonce) {
    ControlGroup& group = groups_.join(nonce, kMe, 0, processes_on(host));
    group.connect(now_);
    return group;
  }
  void link(uint64_t id, LinkKind kind) {
    connections_view_.links[{id, kind}] = Link::kOpen;
    processes_[id].link(kind).connected(now_);
  }
  void unlink(uint64_t id, LinkKind kind) { connections_view_.links.erase({id, kind}); }
  void detector(Duration passed) {
    now_ += passed;
    for (auto& [nonce, group] : groups_.all())
      if (!group.left()) failure_detector_.check_hosts(group, now_);
    failure_detector_.check_processes(now_);
  }

  // The following functions implement FailureDetector::Delegate.
  void learn_lost(uint64_t id, const std::string& cause) override {
    history_.record_lost(id, cause);
    processes_.forget(id);
    lost_[id] = cause;
  }
  void learn_left(uint64_t id) override {
    history_.record_left(id);
    processes_.forget(id);
    left_.push_back(id);
  }

  TimePoint now_ = kStart;
  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  ControlGroupTable groups_;
  ControlHistory history_;
  FakeConnectionView connections_view_;
  ControlDialer dialer_{processes_, groups_, history_, connections_view_};
  FakeConnectionSender sender_;
  ConnectionDemand demand_{kMe, processes_, groups_, connections_view_, sender_};
  FormationBarrier formation_barrier_;
  FailureDetector failure_detector_{
      kTimeout,          processes_, groups_, history_, formation_barrier_,
      connections_view_, demand_,    dialer_, *this};
  std::map<uint64_t, std::string> lost_;
  std::vector<uint64_t> left_;
};

TEST_F(FailureDetectorTest, ASilentProcessIsLostWhenItsTimeIsOver) {
  (void)join({0, 0});
  link(2, LinkKind::kLocal);
  detector(kTimeout);
  EXPECT_TRUE(lost_.empty());
  detector(Milliseconds(100));
  ASSERT_TRUE(lost_.contains(2));
  EXPECT_EQ(lost_[2],
            "its process (pid 102 on host h0) has been silent for 10.1 s (stopped, frozen or "
            "unreachable)");
}

TEST_F(FailureDetectorTest, WhoIsHeardOfIsThere) {
  (void)join({0, 0});
  link(2, LinkKind::kLocal);
  for (int i = 0; i < 5; ++i) {
    detector(kTimeout / 2);
    processes_[2].link(LinkKind::kLocal).heard(now_);
  }
  EXPECT_TRUE(lost_.empty());
}

TEST_F(FailureDetectorTest, OfAGroupThatWasLeftNobodyIsMissed) {
  (void)join({0, 0});
  link(2, LinkKind::kLocal);
  ASSERT_TRUE(groups_.leave(kNonce, 0, now_));
  EXPECT_FALSE(demand_.is_monitored(2));
  EXPECT_TRUE(demand_.needed(2)) << "it has yet to hear of that";
  detector(kTimeout * 2);
  EXPECT_TRUE(lost_.empty());
}

TEST_F(FailureDetectorTest, WhoSaidThatItExitsIsNotLost) {
  (void)join({0, 0});
  link(2, LinkKind::kLocal);
  processes_[2].exits(now_);
  detector(kTimeout);
  EXPECT_TRUE(left_.empty());
  detector(Milliseconds(1));
  EXPECT_EQ(left_, std::vector<uint64_t>{2});
  EXPECT_TRUE(lost_.empty());
}

// The connection ended, no process listens on its socket, and the kernel cannot be queried.
TEST_F(FailureDetectorTest, ADesertedSocketIsADeath) {
  (void)join({0, 0});
  link(2, LinkKind::kLocal);
  unlink(2, LinkKind::kLocal);
  detector(Milliseconds(60));
  ASSERT_EQ(connections_view_.dials.size(), 1u);
  EXPECT_EQ(connections_view_.dials[0].address, "@2");
  for (int i = 0; i < 3; ++i) processes_[2].link(LinkKind::kLocal).failed(ECONNREFUSED, "refused");
  detector(Milliseconds(1));
  ASSERT_TRUE(lost_.contains(2));
  EXPECT_NE(lost_[2].find("nothing listens on its control socket"), std::string::npos);
}

TEST_F(FailureDetectorTest, AHostFallsSilentAsAWhole) {
  ControlGroup& group = join({0, 1, 1});
  EXPECT_EQ(group.state(), ControlGroup::State::kConnected);
  detector(Duration(0));
  ASSERT_TRUE(group.representative);
  link(2, LinkKind::kTcp);
  detector(Milliseconds(900));  // the host is suspected, so its other processes are dialed
  ASSERT_EQ(connections_view_.dials.size(), 1u);
  EXPECT_EQ(connections_view_.dials[0].peer, 3u) << "the other one is connected";
  EXPECT_EQ(connections_view_.dials[0].nonce, kNonce);
  EXPECT_EQ(connections_view_.dials[0].source, "tcp1");
  detector(kTimeout);
  EXPECT_EQ(lost_.size(), 2u);
  EXPECT_EQ(lost_[3],
            "host h1 fell silent: nothing was heard from its processes for 10.9 s "
            "(pid 103 on host h1 among them)");
}

TEST_F(FailureDetectorTest, OfALargeHostThatIsSuspectSomeAreTriedAtATime) {
  std::vector<int> hosts(21, 1);
  hosts[0] = 0;
  (void)join(hosts);
  detector(Duration(0));
  std::set<uint64_t> tried;
  for (const size_t all : {8, 16, 20}) {
    detector(Milliseconds(900));
    for (const auto& dial : connections_view_.dials) tried.insert(dial.peer);
    EXPECT_EQ(tried.size(), all);
  }
}

// If all processes of a host end together, none is left to report it, and most had no link to this
// process.
TEST_F(FailureDetectorTest, WhoHasJoinedAndIsRefusedWithoutALinkIsDead) {
  (void)join({0, 1, 1, 1});
  detector(Duration(0));
  (void)formation_barrier_.learn(kNonce, {3}, [](uint64_t) { return true; });
  for (const uint64_t id : {3, 4}) {
    PeerLink& link = processes_[id].link(LinkKind::kTcp);
    link.want(now_);
    for (int i = 0; i < 2; ++i) link.failed(ECONNREFUSED, "refused");
  }
  detector(Milliseconds(60));
  EXPECT_TRUE(lost_.empty());
  for (const uint64_t id : {3, 4})
    processes_[id].link(LinkKind::kTcp).failed(ECONNREFUSED, "refused");
  detector(Milliseconds(60));
  EXPECT_EQ(lost_.size(), 1u) << "4 may not listen yet";
  EXPECT_EQ(lost_[3],
            "its process (pid 103 on host h1) died: nothing listens on its control socket");
}

TEST_F(FailureDetectorTest, WhoseHostLeavesHasLeftToo) {
  (void)join({0, 1, 1});
  detector(Duration(0));
  (void)formation_barrier_.learn(kNonce, {3}, [](uint64_t) { return true; });
  learn_left(2);
  PeerLink& link = processes_[3].link(LinkKind::kTcp);
  link.want(now_);
  for (int i = 0; i < 3; ++i) link.failed(ECONNREFUSED, "refused");
  detector(Milliseconds(60));
  EXPECT_EQ(left_, (std::vector<uint64_t>{2, 3}));
  EXPECT_TRUE(lost_.empty());
}

TEST_F(FailureDetectorTest, OneProcessOfAHostSpeaksForIt) {
  (void)join({0, 1, 1});
  detector(Duration(0));
  link(3, LinkKind::kTcp);
  detector(kTimeout - Milliseconds(1));
  processes_[3].link(LinkKind::kTcp).heard(now_);
  detector(kTimeout - Milliseconds(1));
  EXPECT_TRUE(lost_.empty());
}

// The only connected process of the host has gone. The others had no link to this process, so they
// could not have sent anything.
TEST_F(FailureDetectorTest, WhoTakesOverIsNotBlamedForSilenceBefore) {
  for (const bool exits : {false, true}) {
    lost_.clear();
    const uint64_t nonce = kNonce + (exits ? 1 : 0);
    const std::vector<int> hosts = exits ? std::vector{0, 0, 0, 0, 2, 2} : std::vector{0, 0, 1, 1};
    const uint64_t first = hosts.size() - 1;
    (void)join(hosts, nonce);
    detector(Duration(0));
    link(first, LinkKind::kTcp);
    for (int i = 0; i < 8; ++i) {
      detector(kTimeout / 4);
      processes_[first].link(LinkKind::kTcp).heard(now_);
    }
    if (exits) {
      processes_[first].exits(now_);
    } else {
      detector(Milliseconds(200));
      learn_lost(first, "killed");
      lost_.clear();
    }
    detector(Milliseconds(200));
    detector(kTimeout - std::chrono::seconds(1));
    EXPECT_TRUE(lost_.empty()) << exits;
    detector(std::chrono::seconds(1));
    EXPECT_TRUE(lost_.contains(first + 1)) << "it had its time";
    EXPECT_TRUE(groups_.leave(nonce, 0, now_));
  }
}

// Only the two lowest live processes of a host monitor other hosts. When one dies, the next one
// takes over and must start with a fresh timeout.
TEST_F(FailureDetectorTest, ARepresentativesSuccessorDoesNotBlameForEarlierSilence) {
  const auto members = processes_on({0, 0, 0, 1});
  ControlGroupTable groups;
  FailureDetector detector{kTimeout,          processes_, groups,  history_, formation_barrier_,
                           connections_view_, demand_,    dialer_, *this};
  ControlGroup& group = groups.join(kNonce, 3, 2, members);
  group.connect(now_);
  detector.check_hosts(group, now_);
  EXPECT_FALSE(group.representative);
  history_.record_lost(1, "killed");
  now_ += kTimeout * 2;
  detector.check_hosts(group, now_);
  EXPECT_TRUE(group.representative);
  EXPECT_EQ(group.watched_since, now_);
  EXPECT_TRUE(lost_.empty());
  detector.check_hosts(group, now_ + kTimeout + Milliseconds(1));
  EXPECT_TRUE(lost_.contains(4));
}

TEST_F(FailureDetectorTest, ItsOwnPauseIsNobodysSilence) {
  (void)join({0, 0, 1});
  detector(Duration(0));
  link(2, LinkKind::kLocal);
  now_ += kTimeout * 3;
  failure_detector_.discount_own_pause(kTimeout * 3, now_);
  detector(Duration(0));
  EXPECT_TRUE(lost_.empty());
  now_ += kTimeout + Milliseconds(1);
  failure_detector_.discount_own_pause(Milliseconds(900), now_);  // a busy machine
  detector(Duration(0));
  EXPECT_EQ(lost_.size(), 2u);
}

TEST_F(FailureDetectorTest, DialsWhenItIsItsTurn) {
  const ControlGroup& group = join({0, 0, 1});
  EXPECT_TRUE(group.roster.dials_first(2));
  dialer_.keep_linked(group, now_);
  ASSERT_EQ(connections_view_.dials.size(), 2u);
  dialer_.keep_linked(group, now_ + Milliseconds(40));
  EXPECT_EQ(connections_view_.dials.size(), 2u) << "too soon";
  connections_view_.links[{2, LinkKind::kLocal}] = Link::kTried;
  dialer_.keep_linked(group, now_ + Milliseconds(60));
  ASSERT_EQ(connections_view_.dials.size(), 3u);
  EXPECT_EQ(connections_view_.dials[2].peer, 3u);
}

TEST_F(FailureDetectorTest, TheSideThatShouldAcceptDialsAfterAWhile) {
  ControlGroupTable groups;
  ControlDialer dialer{processes_, groups, history_, connections_view_};
  const ControlGroup& group = groups.join(kNonce, 2, 1, processes_on({0, 0}));
  dialer.keep_linked(group, now_);
  dialer.keep_linked(group, now_ + Milliseconds(299));
  EXPECT_TRUE(connections_view_.dials.empty());
  dialer.keep_linked(group, now_ + Milliseconds(300));
  EXPECT_EQ(connections_view_.dials.size(), 1u);
  history_.record_left(1);
  dialer.keep_linked(group, now_ + std::chrono::seconds(1));
  EXPECT_EQ(connections_view_.dials.size(), 1u) << "who is gone is not dialed";
}

}  // namespace
}  // namespace ringdist::test
