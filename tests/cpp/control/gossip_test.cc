// Floods, formation reports and departures passed on by gossip, with fake connections.
#include "control/gossip.h"

#include <gtest/gtest.h>

#include <map>

#include "base/serialize.h"
#include "control/fake_connection_sender.h"
#include "control/fake_connection_view.h"
#include "os/epoll.h"
#include "support/test_certificate.h"

namespace ringdist::test {
namespace {

using Ids = std::vector<uint64_t>;

// This process is rank 0 (process 1) of a group on three hosts.
class GossipTest : public testing::Test, protected ControlDelegate {
 protected:
  ControlGroup& join() { return groups_.join(kNonce, kMe, 0, processes_on({0, 0, 0, 1, 2})); }
  static std::vector<std::byte> bytes(size_t count) { return std::vector<std::byte>(count); }
  Frame flood_of(uint64_t origin, uint64_t sequence, ConstBytes payload) {
    frame_ = FloodRecord{origin, sequence, payload}.frame();
    return {FrameType::kFlood, ConstBytes(frame_).subspan(5)};
  }
  Frame flood_of(uint64_t origin, uint64_t sequence) {
    return flood_of(origin, sequence, payload_);
  }
  Frame flood_about(uint64_t nonce, uint64_t sequence) {
    const std::vector<std::byte> payload = Writer().put(nonce).take();
    return flood_of(9, sequence, payload);
  }
  Frame formed(const Ids& processes) {
    frame_ = GroupFormed{kNonce, processes}.frame();
    return {FrameType::kFormed, ConstBytes(frame_).subspan(5)};
  }

  // The following functions implement ControlDelegate.
  void on_process_lost(uint64_t id, const Error& cause) override { lost_[id] = cause.message(); }
  void on_process_left(uint64_t id) override { left_.push_back(id); }
  void on_control_failed(const Error&) override {}
  void on_flood(uint64_t origin, std::span<const std::byte>) override {
    origin_ = origin;
    ++floods_;
  }
  void on_membership_stream(FramedSocket, const ControlHello&, LinkKind) override {}
  void on_data_socket(Stream, ConstBytes) override {}
  std::string dump() override { return ""; }
  std::string snapshot(uint8_t) override { return "{}"; }

  Result<Epoll> epoll_ = Epoll::create();
  ControlPeerTable processes_{epoll_.value()};
  ControlGroupTable groups_;
  ControlHistory history_;
  FormationBarrier formation_barrier_;
  FakeConnectionView connections_view_;
  FakeConnectionSender sender_;
  TickTimer timer_{kStart};
  ControlGossip gossip_{kMe, sender_, history_, formation_barrier_, groups_, *this};
  ConnectionDemand demand_{kMe, processes_, groups_, connections_view_, sender_};
  DepartureHandler departures_{kMe, history_, groups_, processes_, demand_, gossip_, timer_, *this};
  const std::vector<std::byte> payload_ = bytes(3);
  std::vector<std::byte> frame_;
  std::map<uint64_t, std::string> lost_;
  Ids left_;
  int floods_ = 0;
  uint64_t origin_ = 0;  // the last flood's
};

TEST_F(GossipTest, AFloodOfOursGoesToAllThatAreOpen) {
  (void)sender_.add(2);
  (void)sender_.add(3, LinkKind::kTcp, ControlConnection::State::kHeld);
  (void)sender_.add(4, LinkKind::kTcp);
  gossip_.flood(payload_, kStart);
  gossip_.flood(payload_, kStart);
  ASSERT_EQ(sender_.said.size(), 4u);
  EXPECT_EQ(FloodRecord::decode(sender_.said[0].body)->sequence, 0u);
  EXPECT_EQ(FloodRecord::decode(sender_.said[2].body)->sequence, 1u);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{2, 4, 2, 4}));
  EXPECT_EQ(floods_, 0) << "its own";
  testing::internal::CaptureStderr();
  gossip_.flood(bytes(kMaxFrameBody), kStart);
  EXPECT_NE(testing::internal::GetCapturedStderr().find("was not sent"), std::string::npos);
  EXPECT_TRUE(sender_.said.empty());
}

// A member passes a notice on that it has made up in the name of another one.
TEST_F(GossipTest, WithCertificatesNoticesAreSigned) {
  const auto mine = certificate_of("any");
  const auto a = certificate_of("a");
  const auto b = certificate_of("b");
  const uint64_t origin = a->draw_id();
  ControlHistory history;
  ControlGossip gossip{kMe, sender_, history, formation_barrier_, groups_, *this, mine};
  ControlConnection& from = sender_.add(2);
  const auto name = [&](int number) {
    return "notice " + std::to_string(number) + " of " + std::to_string(origin);
  };
  testing::internal::CaptureStderr();
  for (const auto& forged : {b->seal(payload_, name(0)), a->seal(payload_, name(1)), payload_})
    gossip.on_flood(from, flood_of(origin, 0, forged), kStart);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(floods_, 0);
  EXPECT_TRUE(sender_.said.empty());
  EXPECT_NE(log.find("it was signed with the certificate of owner 'b' for ranks 2, 5"),
            std::string::npos)
      << log;
  gossip.on_flood(from, flood_of(origin, 0, a->seal(payload_, name(0))), kStart);
  EXPECT_EQ(floods_, 1);
  EXPECT_EQ(origin_, origin);

  gossip.flood(payload_, kStart);
  ASSERT_FALSE(sender_.said.empty());
  const auto sent = FloodRecord::decode(sender_.said[0].body);
  ControlHistory of_peer;
  ControlGossip peer{9, sender_, of_peer, formation_barrier_, groups_, *this, a};
  peer.on_flood(from, flood_of(kMe, sent->sequence, sent->payload), kStart);
  EXPECT_EQ(floods_, 1) << "its id is not of its certificate";
}

// All processes of a host are connected to each other. Forwarding inside the host would cost n^3
// messages if n processes flood.
TEST_F(GossipTest, InsideAHostAFloodAboutAFormedGroupIsNotPassedOn) {
  join();
  ControlConnection& local = sender_.add(2);
  (void)sender_.add(3);
  ControlConnection& remote = sender_.add(4, LinkKind::kTcp);
  (void)sender_.add(5, LinkKind::kTcp);
  const auto flood = [this](uint64_t sequence) { return flood_about(kNonce, sequence); };
  gossip_.learn_formed(kNonce, {kMe, 2, 3, 4}, nullptr);
  sender_.said.clear();
  gossip_.on_flood(local, flood(1), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{3, 4, 5})) << "one may not be connected yet";
  gossip_.learn_formed(kNonce, {5}, nullptr);
  sender_.said.clear();
  gossip_.on_flood(local, flood(2), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{4, 5}));
  gossip_.on_flood(remote, flood(3), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{2, 3, 5}));
  (void)groups_.leave(kNonce, 0, kStart);
  (void)groups_.forget_left([](uint64_t, const ControlGroup&) { return true; }, kStart);
  gossip_.on_flood(local, flood(4), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{4, 5})) << "others leave a group later than we";
  sender_.said.clear();
  gossip_.on_flood(sender_.add(8), flood(5), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{2, 3, 4, 5})) << "no member: it has not told all";
  EXPECT_EQ(floods_, 5);
}

// Without this rule, a job with 96 ranks in four subgroups sent a million floods.
TEST_F(GossipTest, AFloodAboutAGroupOfOthersIsNotPassedOnToWhomTheSpeakerHasTold) {
  join();
  ControlConnection& local = sender_.add(2);
  (void)sender_.add(3);
  ControlConnection& unknown = sender_.add(8);
  (void)sender_.add(4, LinkKind::kTcp);
  const auto flood = [this](uint64_t sequence) { return flood_about(kNonce + 1, sequence); };
  gossip_.learn_formed(kNonce, {kMe, 2, 3, 4}, nullptr);
  sender_.said.clear();
  gossip_.on_flood(local, flood(1), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{3, 8, 4})) << "one may not be connected yet";
  gossip_.learn_formed(kNonce, {5}, nullptr);
  sender_.said.clear();
  gossip_.on_flood(local, flood(2), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{8, 4}));
  gossip_.on_flood(unknown, flood(3), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), (Ids{2, 3, 4}));
}

// The sender and another member may be connected for a group that both have left, so only the
// group's own links count.
TEST_F(GossipTest, AFloodAboutOurGroupGoesByItsOwnLinks) {
  join();
  ControlConnection& local = sender_.add(2);
  (void)sender_.add(3);
  gossip_.learn_formed(kNonce, {kMe, 2, 3, 4, 5}, nullptr);
  const uint64_t forming = kNonce + 1;
  groups_.join(forming, kMe, 0, processes_on({0, 0, 0}));
  sender_.said.clear();
  gossip_.on_flood(local, flood_about(forming, 1), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), Ids{3}) << "it may not be linked to the speaker yet";
}

TEST_F(GossipTest, AnothersFloodIsPassedOnAndToldOnce) {
  ControlConnection& from = sender_.add(2);
  (void)sender_.add(3);
  gossip_.on_flood(from, flood_of(9, 5), kStart);
  EXPECT_EQ(sender_.take(FrameType::kFlood), Ids{3});
  EXPECT_EQ(origin_, 9u) << "not the process that has passed it on";
  gossip_.on_flood(*sender_.connections[1], flood_of(9, 5), kStart);
  gossip_.on_flood(from, flood_of(kMe, 0), kStart);
  gossip_.on_flood(from, flood_of(/*origin=*/0, 0), kStart);
  gossip_.on_flood(from, {FrameType::kFlood, ConstBytes(payload_)}, kStart);
  EXPECT_TRUE(sender_.said.empty()) << "known, our own, of nobody, and nonsense";
  EXPECT_EQ(floods_, 1);
}

TEST_F(GossipTest, WhoFoundTheGroupIsToldToItsMembers) {
  (void)join();
  (void)sender_.add(2);
  (void)sender_.add(99);
  (void)sender_.add(4, LinkKind::kTcp);
  gossip_.learn_formed(kNonce, {kMe}, nullptr);
  EXPECT_EQ(sender_.take(FrameType::kFormed), (Ids{2, 4})) << "not to whom it is nothing to";
  gossip_.learn_formed(kNonce, {kMe}, nullptr);
  EXPECT_TRUE(sender_.said.empty()) << "no news";
}

TEST_F(GossipTest, OnlyMembersReportWhoFoundTheGroup) {
  join();
  gossip_.on_formed(sender_.add(77), formed({2, 3}));
  EXPECT_FALSE(formation_barrier_.has(kNonce, 2));
  gossip_.on_formed(sender_.add(2), formed({2, 99}));
  EXPECT_TRUE(formation_barrier_.has(kNonce, 2));
  EXPECT_FALSE(formation_barrier_.has(kNonce, 99)) << "no member";
}

// Inside a host, each process informs all others. A report from another host is forwarded to this
// host and to further hosts.
TEST_F(GossipTest, RepresentativesPassFormedOnBetweenHosts) {
  (void)join();
  ControlConnection& local = sender_.add(2);
  (void)sender_.add(3);
  ControlConnection& tcp = sender_.add(4, LinkKind::kTcp);
  (void)sender_.add(5, LinkKind::kTcp);
  gossip_.on_formed(local, formed({2}));
  EXPECT_EQ(sender_.take(FrameType::kFormed), (Ids{4, 5}));
  gossip_.on_formed(tcp, formed({4, 2}));
  ASSERT_FALSE(sender_.said.empty());
  EXPECT_EQ(GroupFormed::decode(sender_.said[0].body)->processes, Ids{4}) << "2 is known";
  EXPECT_EQ(sender_.take(FrameType::kFormed), (Ids{2, 3, 5}));
}

TEST_F(GossipTest, WhatCameBeforeTheGroupIsToldWhenItIsJoined) {
  (void)sender_.add(3);
  ControlConnection& from = sender_.add(2);
  gossip_.on_formed(from, formed({2}));
  EXPECT_TRUE(sender_.said.empty()) << "nobody knows to whom";
  (void)join();
  gossip_.tell_members(kNonce);
  EXPECT_EQ(sender_.take(FrameType::kFormed), (Ids{3, 2}));
}

// The order matters: the group's formation must arrive before the departure of one of its members.
TEST_F(GossipTest, ANewConnectionHearsWhoArrivedAndThenWhoIsGone) {
  (void)join();
  gossip_.learn_formed(kNonce, {3}, nullptr);
  departures_.learn_lost(3, "killed", nullptr);
  gossip_.flood(payload_, kStart);
  gossip_.bring_up_to_date(sender_.add(2), kStart);
  ASSERT_EQ(sender_.said.size(), 3u);
  EXPECT_EQ(sender_.said[0].type, FrameType::kFormed);
  EXPECT_EQ(sender_.said[1].type, FrameType::kLost);
  EXPECT_EQ(sender_.said[2].type, FrameType::kFlood);
  sender_.said.clear();
  gossip_.bring_up_to_date(sender_.add(99), kStart + std::chrono::minutes(2));
  EXPECT_EQ(sender_.said.size(), 1u) << "a stranger to the group, and the flood is old";
}

TEST_F(GossipTest, ADeathIsToldPassedOnAndDropped) {
  ControlConnection& teller = sender_.add(2);
  ControlConnection& culprit = sender_.add(3);
  (void)sender_.add(4);
  (void)processes_[3];
  timer_.set(std::chrono::seconds(1));
  departures_.learn_lost(3, "killed", &teller);
  EXPECT_EQ(lost_[3], "killed");
  EXPECT_EQ(sender_.take(FrameType::kLost), (Ids{3, 4})) << "the culprit, too; not who told it";
  EXPECT_EQ(culprit.state, ControlConnection::State::kClosing);
  EXPECT_EQ(processes_.find(3), nullptr);
  EXPECT_TRUE(timer_.due());
  lost_.clear();
  departures_.learn_lost(3, "killed again", nullptr);
  departures_.learn_left(3, nullptr);
  EXPECT_TRUE(lost_.empty() && left_.empty() && sender_.said.empty()) << "it counts once";
}

TEST_F(GossipTest, ADepartureIsNoDeath) {
  ControlConnection& itself = sender_.add(2);
  (void)sender_.add(3);
  departures_.learn_left(2, &itself);
  EXPECT_EQ(left_, Ids{2});
  EXPECT_TRUE(lost_.empty());
  EXPECT_EQ(sender_.take(FrameType::kLeft), Ids{3});
  departures_.learn_left(kMe, nullptr);
  EXPECT_EQ(left_, Ids{2}) << "of itself it knows better";
}

TEST_F(GossipTest, WhoLeavesAFormedGroupHasToldItsHost) {
  join();
  gossip_.learn_formed(kNonce, {kMe, 2, 3, 4}, nullptr);
  ControlConnection& itself = sender_.add(2);
  (void)sender_.add(3);
  (void)sender_.add(9, LinkKind::kTcp);
  departures_.learn_left(2, &itself);
  EXPECT_EQ(sender_.take(FrameType::kLeft), (Ids{3, 9})) << "5 may not be connected yet";
  gossip_.learn_formed(kNonce, {5}, nullptr);
  sender_.said.clear();
  departures_.learn_left(3, nullptr);
  EXPECT_EQ(sender_.take(FrameType::kLeft), Ids{9});
}

// Other processes declared this one lost while it was stopped. It goes on, and its connections
// stay.
TEST_F(GossipTest, ItsOwnDeathDropsNothing) {
  ControlConnection& teller = sender_.add(2);
  departures_.learn_lost(kMe, "it was silent", &teller);
  EXPECT_EQ(lost_[kMe], "it was silent");
  EXPECT_TRUE(teller.open());
}

// The process with the lower id closes a connection that neither side needs.
TEST_F(GossipTest, ConnectionsThatNobodyNeedsAreClosed) {
  (void)join();
  ControlConnection& member = sender_.add(2);
  ControlConnection& opened_by_peer = sender_.add(9);
  ControlConnection& higher = sender_.add(0);
  demand_.update_connections();
  EXPECT_TRUE(sender_.said.empty()) << "needed, as all believe";
  (void)groups_.leave(kNonce, 0, kStart);
  demand_.update_connections();
  EXPECT_TRUE(sender_.said.empty()) << "they have yet to hear that it was left";
  (void)groups_.forget_left([](uint64_t, const ControlGroup&) { return true; }, kStart);
  demand_.update_connections();
  EXPECT_EQ(sender_.take(FrameType::kNeed), Ids{2});
  EXPECT_TRUE(member.open()) << "the peer needs it";
  member.peer_needs = opened_by_peer.peer_needs = higher.peer_needs = false;
  demand_.update_connections();
  EXPECT_TRUE(member.closed() && opened_by_peer.closed());
  EXPECT_TRUE(higher.open()) << "its to close";
}

TEST_F(GossipTest, WhoIsNeitherTriedNorNeededIsForgotten) {
  (void)join();
  for (const uint64_t id : {2, 8, 9, 10}) (void)processes_[id];
  processes_[9].proven = true;
  connections_view_.links[{10, LinkKind::kTcp}] = FakeConnectionView::Link::kTried;
  demand_.update_connections();
  EXPECT_EQ(processes_.ids(), (Ids{2, 9, 10}));
}

TEST(TickTimer, TicksAtEachHeartbeatOrSooner) {
  TickTimer pace(kStart);
  EXPECT_TRUE(pace.due()) << "at once";
  EXPECT_EQ(pace.sleep(), Duration(0));
  pace.set(Milliseconds(200));
  EXPECT_FALSE(pace.due());
  pace.at_most(Milliseconds(50));
  pace.at_most(Milliseconds(100));
  EXPECT_EQ(pace.sleep(), Milliseconds(50));
  EXPECT_EQ(pace.begin_turn(kStart + Milliseconds(80)), Milliseconds(30)) << "late";
  EXPECT_TRUE(pace.due());
  EXPECT_EQ(pace.sleep(), Duration(0));
  pace.set(Milliseconds(200));
  pace.hurry();
  pace.at_most(Milliseconds(50));
  EXPECT_TRUE(pace.due()) << "what has happened does not wait";
}

}  // namespace
}  // namespace ringdist::test
