#include <gtest/gtest.h>

#include "engine/group/now.h"
#include "engine/group/peer_table.h"

namespace ringdist {
namespace {

using Presence = Peer::State;
const Error kDeath(ErrorKind::kPeerLost, "it died");

// Returns a group with `size` members about which no details are set.
GroupDescriptor strangers(int size) {
  GroupDescriptor out;
  out.members.resize(static_cast<size_t>(size));
  return out;
}

TEST(Peer, GoesInEveryOrder) {
  struct Row {
    Presence from, left, exits, ended, died;
  };
  const Row rows[] = {
      {Presence::kHere, Presence::kLeft, Presence::kExiting, Presence::kExited, Presence::kLost},
      {Presence::kExiting, Presence::kExiting, Presence::kExiting, Presence::kExited,
       Presence::kExited},
      {Presence::kLeft, Presence::kLeft, Presence::kLeft, Presence::kLeft, Presence::kLeft},
      {Presence::kExited, Presence::kExited, Presence::kExited, Presence::kExited,
       Presence::kExited},
      {Presence::kLost, Presence::kLost, Presence::kLost, Presence::kLost, Presence::kLost},
  };
  const auto make = [](Presence presence) {
    Peer peer;
    if (presence == Presence::kExiting) peer.mark_exiting(3, kNow);
    if (presence == Presence::kLeft) peer.mark_left(3, kNow);
    if (presence == Presence::kExited) peer.mark_exited(kNow);
    if (presence == Presence::kLost) peer.mark_lost(kDeath, kNow);
    EXPECT_EQ(peer.presence(), presence);
    return peer;
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(static_cast<int>(row.from));
    const bool was_gone = make(row.from).departed();
    Peer peer = make(row.from);
    peer.mark_left(7, kNow);
    EXPECT_EQ(peer.presence(), row.left);
    EXPECT_EQ(peer.announced_last_op(), 7u);
    peer = make(row.from);
    peer.mark_exiting(7, kNow);
    EXPECT_EQ(peer.presence(), row.exits);
    EXPECT_EQ(peer.departed(), was_gone) << "who is gone does not come back";
    EXPECT_EQ(peer.announced_last_op(), 7u);
    peer = make(row.from);
    EXPECT_EQ(peer.mark_exited(kNow), !was_gone);
    EXPECT_EQ(peer.presence(), row.ended);
    peer = make(row.from);
    EXPECT_EQ(peer.mark_lost(kDeath, kNow), !was_gone);
    EXPECT_EQ(peer.presence(), row.died);
    EXPECT_EQ(static_cast<bool>(peer.loss()), row.died == Presence::kLost);
  }
}

TEST(Peer, WhoExitsCountsAsThereUntilItHasEnded) {
  Peer peer;
  peer.mark_exiting(5, kNow);
  EXPECT_FALSE(peer.departed());
  EXPECT_FALSE(peer.last_op());
  EXPECT_EQ(peer.announced_last_op(), 5u);
  EXPECT_TRUE(peer.mark_exited(kNow + Milliseconds(1)));
  EXPECT_TRUE(peer.departed());
  EXPECT_EQ(peer.last_op(), 5u);
  EXPECT_EQ(peer.departed_at(), kNow + Milliseconds(1));
}

TEST(Peer, WhoEndsWithoutAWordTookPartInNoLaterOp) {
  Peer peer;
  peer.mark_exited(kNow);
  EXPECT_EQ(peer.last_op(), 0u);
}

TEST(Peer, TheFirstBreakageStays) {
  Peer peer;
  EXPECT_FALSE(peer.broken_for(Duration(0), kNow));
  peer.break_connection(Error(ErrorKind::kPeerLost, "first"), kNow);
  peer.break_connection(Error(ErrorKind::kPeerLost, "second"), kNow + Milliseconds(900));
  EXPECT_EQ(peer.breakage().message(), "first");
  EXPECT_FALSE(peer.broken_for(Milliseconds(500), kNow + Milliseconds(499)));
  EXPECT_TRUE(peer.broken_for(Milliseconds(500), kNow + Milliseconds(500)));
}

TEST(PeerTable, NamesThemAndTheFirstWhoLeft) {
  GroupDescriptor membership = strangers(6);
  membership.members[2].where = "pid 7 on host b";
  PeerTable peers(membership);
  EXPECT_EQ(peers.describe_rank(1), "rank 1");
  EXPECT_EQ(peers.describe_rank(2), "rank 2 (pid 7 on host b)");
  EXPECT_EQ(peers.describe_rank(-3), "rank -3");
  EXPECT_EQ(peers.list({1, 2}), "rank 1, rank 2 (pid 7 on host b)");
  EXPECT_EQ(peers.list({0, 1, 3, 4, 5, 2}), "rank 0, rank 1, rank 3, rank 4 and 2 more");
  EXPECT_EQ(peers.first_leaver(), -1);
  peers[4].mark_left(9, kNow);
  peers[2].mark_left(3, kNow);
  peers[5].mark_exiting(1, kNow);  // exiting does not count yet
  EXPECT_EQ(peers.first_leaver(), 2);
  peers[5].mark_exited(kNow);
  EXPECT_EQ(peers.first_leaver(), 5);
}

TEST(PeerTable, SayWhyOneIsGone) {
  PeerTable peers(strangers(4));
  peers[1].mark_left(3, kNow);
  peers[2].mark_exited(kNow);
  peers[3].mark_lost(kDeath, kNow);
  const std::string left = peers.departure(1).message();
  EXPECT_NE(left.find("rank 1 has left the group after op #3"), std::string::npos) << left;
  EXPECT_NE(left.find("it destroyed the group"), std::string::npos) << left;
  const std::string exited = peers.departure(2).message();
  EXPECT_NE(exited.find("exited without destroying"), std::string::npos) << exited;
  EXPECT_EQ(exited.find("after op"), std::string::npos) << exited;
  EXPECT_EQ(peers.departure(3).message(), "it died");
  EXPECT_EQ(peers.departure(1).ranks(), std::vector{1});
}

TEST(PeerTable, DoubtABrokenConnectionUntilSomebodySaysWhy) {
  PeerTable peers(strangers(2));
  peers[1].break_connection(kDeath, kNow);
  EXPECT_TRUE(peers.any_in_doubt());
  peers[1].mark_exiting(1, kNow);
  EXPECT_FALSE(peers.any_in_doubt());
}

}  // namespace
}  // namespace ringdist
