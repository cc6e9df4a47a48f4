// Effect of members that have left or are lost on the ops of a group, for every kind of departure.
#include "engine/group/lost_peer_check.h"

#include <gtest/gtest.h>

#include "engine/group/now.h"
#include "engine/op/fake_execution_delegate.h"

namespace ringdist::test {
namespace {

const Error kDied(ErrorKind::kPeerLost, "killed");
const Error kReset(ErrorKind::kPeerLost, "reset by peer");
constexpr auto kPastGrace = LostPeerCheck::kGrace + Milliseconds(1);

// Rank 0 of a group of three.
class LostPeerCheckTest : public testing::Test {
 protected:
  LostPeerCheckTest() { progress_.now = kNow; }

  static GroupDescriptor three() {
    GroupDescriptor out;
    out.topology = Topology::one_host(3);
    for (int rank = 0; rank < 3; ++rank)
      out.members.push_back(
          {static_cast<ContextId>(rank + 1), nullptr, "pid " + std::to_string(100 + rank)});
    return out;
  }
  std::shared_ptr<Op> allreduce() {
    auto op =
        planned_op(planner_, allreduce_request(data_, DType::kFloat32, ReduceOp::kSum), ++calls_);
    collectives_.called(*op);
    (void)collectives_.start(op);
    return op;
  }
  std::shared_ptr<Op> message(int peer, bool sends) {
    OpRequest request = allreduce_request(data_, DType::kFloat32, ReduceOp::kNone);
    request.kind = Collective::kPointToPoint;
    request.envelope = Envelope{peer, 0, sends};
    request.input = request.output;
    auto op = planned_op(planner_, std::move(request), 0);
    point_to_point_.enqueue(op);
    return op;
  }

  std::vector<float> data_ = std::vector<float>(4, 1.0f);
  Statistics statistics_;
  ProgressState progress_{statistics_, int64_t{1} << 24};
  FakeExecutionDelegate delegate_{progress_, 0, 3};
  Planner planner_{{0, 3, "direct", false, kRunSegment}};
  uint64_t calls_ = 0;
  RetireExecution retire_ = [this](OpExecutionPtr&& run) {
    run->stop();
    retired_.push_back(std::move(run));
  };
  std::vector<OpExecutionPtr> retired_;
  PeerTable peers_{three()};
  Collectives collectives_{delegate_, retire_};
  PointToPoint point_to_point_{delegate_, retire_};
  ServiceChannel service_channel_{delegate_, nullptr};
  const LostPeerCheck lost_peers_{peers_, collectives_, point_to_point_, service_channel_};
};

TEST_F(LostPeerCheckTest, ADeathCountsWhileACollectiveLacksSomething) {
  (void)peers_[1].mark_lost(kDied, kNow);
  EXPECT_FALSE(lost_peers_.lost_peer_error()) << "nothing is missing";
  const auto op = allreduce();
  EXPECT_EQ(lost_peers_.lost_peer_error().message(), peers_[1].loss().message());
  collectives_.finished(*collectives_.find(op->number));
  EXPECT_FALSE(lost_peers_.lost_peer_error());
}

TEST_F(LostPeerCheckTest, ADeathCountsForMessagesWithThatRankOnly) {
  (void)peers_[1].mark_lost(kDied, kNow);
  (void)message(2, /*sends=*/false);
  (void)message(2, /*sends=*/true);
  (void)message(Envelope::kAnySource, /*sends=*/false);
  EXPECT_FALSE(lost_peers_.lost_peer_error());
  (void)message(1, /*sends=*/false);
  EXPECT_TRUE(lost_peers_.lost_peer_error());
}

TEST_F(LostPeerCheckTest, ADeathCountsForWhatWasNotSentToIt) {
  (void)peers_[1].mark_lost(kDied, kNow);
  (void)message(1, /*sends=*/true);
  EXPECT_TRUE(lost_peers_.lost_peer_error());
}

TEST_F(LostPeerCheckTest, TheFirstToLeaveSaysWhichOpsCanEnd) {
  EXPECT_FALSE(lost_peers_.departure_before(100));
  peers_[1].mark_left(5, kNow);
  peers_[2].mark_left(3, kNow);
  EXPECT_FALSE(lost_peers_.departure_before(3));
  const auto departure = lost_peers_.departure_before(4);
  ASSERT_TRUE(departure);
  EXPECT_EQ(departure->first, 4u);
  EXPECT_NE(departure->cause.message().find("rank 2"), std::string::npos)
      << departure->cause.message();
}

TEST_F(LostPeerCheckTest, WhoIsAboutToEndHasNotLeft) {
  peers_[1].mark_exiting(3, kNow);
  EXPECT_FALSE(lost_peers_.departure_before(4));
  EXPECT_TRUE(peers_[1].mark_exited(kNow));
  EXPECT_TRUE(lost_peers_.departure_before(4));
}

TEST_F(LostPeerCheckTest, ABrokenConnectionIsGivenTime) {
  peers_[1].break_connection(kReset, kNow);
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow));
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow + LostPeerCheck::kGrace - Milliseconds(1)));
  const Error error = lost_peers_.broken_link_error(kNow + kPastGrace);
  EXPECT_NE(error.message().find("the connection to rank 1 (pid 101) broke: reset by peer"),
            std::string::npos)
      << error.message();
  EXPECT_EQ(error.ranks(), std::vector{1});
}

TEST_F(LostPeerCheckTest, ABrokenConnectionOfOneThatDiedIsNoNews) {
  peers_[1].break_connection(kReset, kNow);
  (void)peers_[1].mark_lost(kDied, kNow);
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow + kPastGrace));
}

TEST_F(LostPeerCheckTest, ABrokenConnectionOfALeaverCountsWhereSomethingOfItIsMissing) {
  peers_[1].mark_left(1, kNow);
  peers_[1].break_connection(kReset, kNow);
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow + kPastGrace)) << "it owes nothing";
  (void)allreduce();
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow + LostPeerCheck::kGrace))
      << "the op moved a moment ago";
  EXPECT_TRUE(lost_peers_.broken_link_error(kNow + kPastGrace));
}

TEST_F(LostPeerCheckTest, ABrokenConnectionOfALeaverIsNoMatterOfLaterOps) {
  peers_[1].mark_left(0, kNow);
  peers_[1].break_connection(kReset, kNow);
  (void)allreduce();  // cannot end, which departure_before() reports
  EXPECT_FALSE(lost_peers_.broken_link_error(kNow + kPastGrace));
  EXPECT_TRUE(lost_peers_.departure_before(1));
}

TEST_F(LostPeerCheckTest, AMessageIsStrandedAWhileAfterItsOtherEndHasLeft) {
  (void)message(1, /*sends=*/false);
  EXPECT_FALSE(lost_peers_.stranded_op_error(kNow + kPastGrace));
  peers_[1].mark_left(0, kNow);
  EXPECT_FALSE(lost_peers_.stranded_op_error(kNow + LostPeerCheck::kGrace - Milliseconds(1)));
  EXPECT_NE(lost_peers_.stranded_op_error(kNow + kPastGrace).message().find("rank 1"),
            std::string::npos);
}

TEST_F(LostPeerCheckTest, AReceiveFromAnyIsStrandedWhenAllHaveLeft) {
  (void)message(Envelope::kAnySource, /*sends=*/false);
  peers_[1].mark_left(0, kNow);
  EXPECT_FALSE(lost_peers_.stranded_op_error(kNow + kPastGrace)) << "rank 2 is here";
  (void)peers_[2].mark_lost(kDied, kNow);
  EXPECT_NE(lost_peers_.stranded_op_error(kNow + kPastGrace).message().find("all other ranks"),
            std::string::npos);
}

TEST_F(LostPeerCheckTest, ASendThatMovesIsNotStranded) {
  data_.resize(2 * kRunSegment / sizeof(float));
  (void)message(1, /*sends=*/true);
  peers_[1].mark_left(0, kNow);
  delegate_.work();
  progress_.now = kNow + kPastGrace;
  delegate_.end_send(0);
  EXPECT_FALSE(lost_peers_.stranded_op_error(kNow + kPastGrace));
  EXPECT_TRUE(lost_peers_.stranded_op_error(kNow + 2 * kPastGrace));
}

}  // namespace
}  // namespace ringdist::test
