// All ways in which a group can end, tested on Groups without threads and with a clock that the
// test moves.
#include <gtest/gtest.h>

#include "engine/group/members.h"

namespace ringdist::test {
namespace {

TEST(GroupAlone, OpsEndWell) {
  Members members(2);
  const auto a = members[0].allreduce();
  const auto b = members[1].allreduce();
  members.deliver();
  EXPECT_TRUE(a->finished() && b->finished());
  EXPECT_FALSE(a->error() || b->error());
  EXPECT_EQ(members[0].data[3], 2.0f);
  EXPECT_TRUE(members[0].group.idle());
}

TEST(GroupAlone, ADeadlinePasses) {
  Members members(3);
  const auto op = members[0].allreduce();
  (void)members[1].allreduce();
  members[1].pass(Milliseconds(600));  // sends its status of waiting
  members.deliver();
  members[0].pass(std::chrono::seconds(59));
  EXPECT_FALSE(op->finished());
  members[0].pass(std::chrono::seconds(2));
  expect_failed(*op, ErrorKind::kTimeout, "no sign that it was called by rank 2 (pid 102)");
  EXPECT_EQ(op->error().ranks(), std::vector{2});
  EXPECT_EQ(members[0].host.count(NoticeKind::kAbort), 1);
  const auto later = members[0].allreduce();
  expect_failed(*later, ErrorKind::kTimeout, "Timed out");
}

TEST(GroupAlone, RanksDisagree) {
  Members members(2);
  const auto a = members[0].allreduce(ReduceOp::kSum);
  const auto b = members[1].allreduce(ReduceOp::kMax);
  members.deliver();
  expect_failed(*a, ErrorKind::kMismatch, "SUM");
  expect_failed(*b, ErrorKind::kMismatch, "MAX");
}

TEST(GroupAlone, ARankDiesOfWhichSomethingIsMissing) {
  Members members(2);
  const auto op = members[0].allreduce();
  members[0].group.process_lost(Members::context(1), kKilled);
  expect_failed(*op, ErrorKind::kPeerLost, "rank 1 (pid 101) is lost");
  EXPECT_NE(op->error().message().find("signal 9"), std::string::npos);
  EXPECT_EQ(op->error().ranks(), std::vector{1});
  EXPECT_EQ(members[0].host.count(NoticeKind::kAbort), 1);
}

TEST(GroupAlone, ARankDiesOfWhichNothingIsMissing) {
  Members members(2);
  const auto done = members[0].allreduce();
  (void)members[1].allreduce();
  members.deliver();
  ASSERT_TRUE(done->finished());
  members[0].group.process_lost(Members::context(1), kKilled);
  EXPECT_FALSE(members[0].group.failure()) << "there is no op that it could fail";
  const auto next = members[0].allreduce();
  expect_failed(*next, ErrorKind::kPeerLost, "is lost");
}

// A sender that has failed revokes data in its own memory, but not data that it had copied. The
// copied data arrives without the data before it.
TEST(GroupAlone, WhatWasTakenBackStillTellsOfADisagreement) {
  for (const bool called : {true, false}) {
    Members members(2);
    (void)members[0].allreduce(ReduceOp::kMax);
    std::shared_ptr<Op> op;
    if (called) op = members[1].allreduce();
    auto& sent = members[0].wire.sent[Members::context(1)];
    ASSERT_FALSE(sent.empty());
    MessageHeader header{};
    ASSERT_TRUE(parse_header(sent.front().header, header));
    ASSERT_EQ(header.type, MessageType::kData);
    members[1].group.on_message(Members::context(0), header, Payload::revoked());
    if (!called) op = members[1].allreduce();
    expect_failed(*op, ErrorKind::kMismatch, "ranks disagree on op #1");
  }
}

// If both calls agree, revoked data alone causes no failure; the sender's notice gives the reason.
TEST(GroupAlone, WhatWasTakenBackFailsNothingByItself) {
  for (const bool called : {true, false}) {
    Members members(2);
    (void)members[0].allreduce();
    std::shared_ptr<Op> op;
    if (called) op = members[1].allreduce();
    MessageHeader header{};
    ASSERT_TRUE(parse_header(members[0].wire.sent[Members::context(1)].front().header, header));
    members[1].group.on_message(Members::context(0), header, Payload::revoked());
    if (!called) op = members[1].allreduce();
    EXPECT_FALSE(op->finished());
    EXPECT_FALSE(members[1].group.failure());
  }
}

// Sends to a dead rank need no completion.
TEST(GroupAlone, ADeadRanksSendsAreForgiven) {
  Members members(2);
  members[0].wire.ends_sends = false;
  const auto op = members[0].allreduce();
  (void)members[1].allreduce();
  members.deliver();
  EXPECT_FALSE(op->finished());
  members[0].group.process_lost(Members::context(1), kKilled);
  members[0].host.work(members[0].group);
  ASSERT_TRUE(op->finished());
  EXPECT_FALSE(op->error()) << op->error().what();
  members[0].wire.end_sends();  // late completions are ignored
}

TEST(GroupAlone, ARankLeavesBeforeAnOp) {
  Members members(2);
  (void)members[0].allreduce();
  (void)members[1].allreduce();
  members.deliver();
  members[1].group.announce_leave(NoticeKind::kLeave);
  const auto op = members[0].allreduce();
  members.deliver();
  expect_failed(*op, ErrorKind::kPeerLost, "has left the group after op #1");
}

// The rank has sent everything that the op needs, and these messages are on their way.
TEST(GroupAlone, ARankLeavesAfterItsPartOfAnOp) {
  Members members(2);
  const auto a = members[0].allreduce();
  (void)members[1].allreduce();
  const auto draining = members[0].allreduce();
  members[0].group.on_notice(leave_notice(kNonce, 1, 1));
  EXPECT_FALSE(a->finished()) << "the notice has overtaken its data";
  EXPECT_FALSE(draining->finished());
  members.deliver();
  ASSERT_TRUE(a->finished());
  EXPECT_FALSE(a->error()) << a->error().what();
  expect_failed(*draining, ErrorKind::kPeerLost, "it destroyed the group");
}

TEST(GroupAlone, SendsOfALeaverDoNotComeForever) {
  Members members(2);
  const auto a = members[0].allreduce();
  members[0].group.on_notice(leave_notice(kNonce, 1, 1));
  const auto draining = members[0].allreduce();
  members[0].pass(Milliseconds(400));
  EXPECT_FALSE(a->finished());
  members[0].pass(Milliseconds(200));
  expect_failed(*a, ErrorKind::kPeerLost, "left the group after op #1");
  EXPECT_TRUE(draining->finished());
}

TEST(GroupAlone, AProcessExits) {
  Members members(2);
  const auto op = members[0].allreduce();
  members[1].group.announce_leave(NoticeKind::kExit);
  members.deliver();
  EXPECT_FALSE(op->finished()) << "it has not ended yet";
  members[0].group.process_left(Members::context(1));
  expect_failed(*op, ErrorKind::kPeerLost, "exited without destroying the group");
}

TEST(GroupAlone, AConnectionBreaksAndNobodySaysWhy) {
  Members members(2);
  const auto op = members[0].allreduce();
  members[0].group.connection_lost("fake", Members::context(1),
                                   Error(ErrorKind::kPeerLost, "reset"));
  members[0].pass(Milliseconds(400));
  EXPECT_FALSE(op->finished());
  members[0].pass(Milliseconds(200));
  expect_failed(*op, ErrorKind::kPeerLost, "the connection to rank 1 (pid 101) broke: reset");
}

TEST(GroupAlone, AConnectionOfAnotherTransportIsNotOurs) {
  Members members(2);
  const auto op = members[0].allreduce();
  members[0].group.connection_lost("other", Members::context(1), kKilled);
  members[0].group.connection_lost("fake", 99, kKilled);
  members[0].pass(std::chrono::seconds(5));
  EXPECT_FALSE(op->finished());
}

TEST(GroupAlone, AConnectionBreaksOfWhoHadLeft) {
  Members members(2);
  (void)members[0].allreduce();
  (void)members[1].allreduce();
  members.deliver();
  members[1].group.announce_leave(NoticeKind::kLeave);
  members.deliver();
  members[0].group.connection_lost("fake", Members::context(1), kKilled);
  members[0].pass(std::chrono::seconds(5));
  EXPECT_FALSE(members[0].group.failure());
}

TEST(GroupAlone, AnotherAborts) {
  Members members(3);
  const auto op = members[0].allreduce();
  members[1].group.fail(Error(ErrorKind::kAborted, "enough"), /*tell_others=*/true);
  members.deliver();
  expect_failed(*op, ErrorKind::kAborted, "rank 1 ended the group at op #1: ");
  EXPECT_EQ(members[0].host.count(NoticeKind::kAbort), 0) << "told once, by whom it was";
  EXPECT_TRUE(members[2].group.failure());
}

// Sends data of rank 0 to rank 1, for an op that has not been called there.
void send_early(Members& members, uint64_t op, bool eager) {
  MessageHeader header{};
  header.type = MessageType::kData;
  header.eager = eager;
  header.destination = 1;
  header.nonce = kNonce;
  header.op = op;
  const std::vector<std::byte> payload(kGroupSegment);
  members[1].group.on_message(Members::context(0), header, payload);
}

TEST(GroupAlone, MoreThanTheEagerCreditEndsTheGroup) {
  for (const bool sends : {false, true}) {
    Members members(2);
    const uint64_t channel = PointToPointId::channel(3, Envelope::TagSpace::kCaller);
    const auto op = [&](uint32_t i) { return sends ? PointToPointId::make(channel, i) : i + 1; };
    const Error& failure = members[1].group.failure();
    for (uint32_t i = 0; i < EagerCredit::kSegments; ++i) send_early(members, op(i), true);
    EXPECT_FALSE(failure) << failure.what();
    send_early(members, op(EagerCredit::kSegments), true);
    EXPECT_EQ(failure.kind(), ErrorKind::kProtocol);
    EXPECT_EQ(failure.ranks(), std::vector{0});
    EXPECT_EQ(failure.message(),
              "rank 0 (pid 100) sent more than its eager credit of 4096 bytes to rank 1");
  }
}

TEST(GroupAlone, DataWithoutCreditOrGrantEndsTheGroup) {
  const uint64_t channel = PointToPointId::channel(3, Envelope::TagSpace::kCaller);
  for (const uint64_t op : {uint64_t{1}, PointToPointId::make(channel, 0)}) {
    Members members(2);
    send_early(members, op, /*eager=*/false);
    const Error& failure = members[1].group.failure();
    EXPECT_EQ(failure.kind(), ErrorKind::kProtocol);
    EXPECT_EQ(failure.ranks(), std::vector{0});
    EXPECT_NE(failure.message().find("without a grant"), std::string::npos) << failure.what();
  }
}

// Rank 2 sends a message in the name of rank 0.
TEST(GroupAlone, AMessageOfAnotherProcessIsDropped) {
  Members members(3);
  (void)members[0].allreduce(ReduceOp::kMax);
  const auto op = members[1].allreduce();
  const auto& message = members[0].wire.sent[Members::context(1)].front();
  MessageHeader header{};
  ASSERT_TRUE(parse_header(message.header, header));
  Group& group = members[1].group;
  group.on_message(Members::context(2), header, message.payload);
  EXPECT_FALSE(op->finished());
  EXPECT_EQ(members[1].host.statistics.messages_received, 0);
  group.on_message(/*from=*/0, header, message.payload);
  expect_failed(*op, ErrorKind::kMismatch, "MAX");
}

// Any process that is connected can send a notice, but only its own ranks speak for it.
TEST(GroupAlone, ANoticeOfAnotherProcessIsIgnored) {
  Members members(3);
  const auto op = members[0].allreduce();
  Notice aborts = abort_notice(kNonce, 0, 1, 1, Error(ErrorKind::kAborted, "enough"));
  aborts.from = Members::context(2);
  members[0].group.on_notice(aborts);
  EXPECT_FALSE(members[0].group.failure());
  aborts.from = Members::context(1);
  members[0].group.on_notice(aborts);
  expect_failed(*op, ErrorKind::kAborted, "rank 1 ended the group at op #1: ");
}

TEST(GroupAlone, AReceiveOfWhoHasLeftEnds) {
  Members members(3);
  const auto op = members[0].message(1, /*sends=*/false);
  members[1].group.announce_leave(NoticeKind::kLeave);
  members.deliver();
  members[0].pass(Milliseconds(100));
  EXPECT_FALSE(op->finished()) << "what it sent may be on its way";
  members[0].pass(Milliseconds(600));
  expect_failed(*op, ErrorKind::kPeerLost, "rank 1 (pid 101) has left the group");
}

TEST(GroupAlone, AReceiveOfAnyEndsWhenAllHaveLeft) {
  Members members(3);
  const auto op = members[0].message(Envelope::kAnySource, /*sends=*/false);
  members[1].group.announce_leave(NoticeKind::kLeave);
  members.deliver();
  members[0].pass(std::chrono::seconds(1));
  EXPECT_FALSE(op->finished());
  members[2].group.announce_leave(NoticeKind::kLeave);
  members.deliver();
  members[0].pass(std::chrono::seconds(1));
  expect_failed(*op, ErrorKind::kPeerLost, "all other ranks have left the group or died");
}

TEST(GroupAlone, SendsAndReceivesMeet) {
  Members members(2);
  const auto receive = members[1].message(Envelope::kAnySource, /*sends=*/false);
  members[0].data = {1, 2, 3, 4};
  const auto send = members[0].message(1, /*sends=*/true);
  members.deliver();
  EXPECT_TRUE(send->finished() && receive->finished());
  EXPECT_EQ(receive->source(), 0);
  EXPECT_EQ(members[1].data, members[0].data);
}

TEST(GroupAlone, StallsAreToldOnceAndAnswered) {
  Members members(3);
  const auto op = members[0].allreduce();
  (void)members[1].allreduce();
  members[0].pass(Milliseconds(400));
  EXPECT_EQ(members[0].host.count(NoticeKind::kStalled), 0);
  members[0].pass(Milliseconds(200));
  EXPECT_EQ(members[0].host.count(NoticeKind::kStalled), 1);
  members.deliver();
  members[0].pass(std::chrono::seconds(1));
  EXPECT_EQ(members[0].host.count(NoticeKind::kStalled), 0);
  const GroupStatus status = members[0].group.status();
  EXPECT_EQ(status.rank, GroupStatus::kWaits);
  EXPECT_NE(status.text.find("for rank 2 (pid 102), which has not called it (it has called none)"),
            std::string::npos)
      << status.text;
  EXPECT_EQ(members[2].group.status().rank, GroupStatus::kIsAwaited);
  EXPECT_FALSE(op->finished());
}

// A barrier ends after all earlier ops, including the delivery of their results.
TEST(GroupAlone, ABarrierWaitsForWhatIsHandedOver) {
  Members members(2);
  const auto a = members[0].allreduce(ReduceOp::kSum, /*hands_over=*/true);
  const auto barrier = members[0].barrier();
  (void)members[1].allreduce();
  const auto theirs = members[1].barrier();
  members.deliver();
  ASSERT_TRUE(a->finished());
  EXPECT_FALSE(barrier->finished());
  EXPECT_FALSE(theirs->finished());
  members[0].group.output_delivered(1);
  members[0].host.work(members[0].group);
  members.deliver();
  EXPECT_TRUE(barrier->finished() && theirs->finished());
  EXPECT_FALSE(barrier->error());
}

// A receive without a matching send delays no barrier, wherever its result goes.
TEST(GroupAlone, ABarrierDoesNotWaitForAReceiveThatIsHandedOver) {
  Members members(2);
  const auto receive = members[0].message(1, /*sends=*/false, /*hands_over=*/true);
  const auto barrier = members[0].barrier();
  (void)members[1].barrier();
  members.deliver();
  EXPECT_FALSE(receive->finished());
  ASSERT_TRUE(barrier->finished());
  EXPECT_FALSE(barrier->error());
}

// The death affected no op while the barrier waited.
TEST(GroupAlone, ABarrierThatBeginsAfterADeathEnds) {
  Members members(2);
  const auto op = members[0].allreduce(ReduceOp::kSum, /*hands_over=*/true);
  (void)members[1].allreduce();
  const auto barrier = members[0].barrier();
  members.deliver();
  ASSERT_TRUE(op->finished());
  members[0].group.process_lost(Members::context(1), kKilled);
  EXPECT_FALSE(barrier->finished());
  members[0].group.output_delivered(1);
  expect_failed(*barrier, ErrorKind::kPeerLost, "rank 1 (pid 101) is lost");
}

TEST(GroupAlone, ABarrierThatWaitsIsNotWhatARankTookPartIn) {
  Members members(2);
  (void)members[0].allreduce(ReduceOp::kSum, /*hands_over=*/true);
  (void)members[1].allreduce();
  (void)members[0].barrier();
  members.deliver();
  members[0].group.announce_leave(NoticeKind::kExit);
  ASSERT_EQ(members[0].host.count(NoticeKind::kExit), 1);
  EXPECT_EQ(members[0].host.flooded.back().op, 1u);
}

TEST(GroupAlone, MessagesBeforeTheCallAreKept) {
  Members members(2);
  (void)members[1].allreduce();
  members.deliver();
  EXPECT_NE(members[0].group.dump().find("parked for op #1: "), std::string::npos)
      << members[0].group.dump();
  const auto op = members[0].allreduce();
  members.deliver();
  EXPECT_TRUE(op->finished());
  EXPECT_FALSE(op->error());
}

}  // namespace
}  // namespace ringdist::test
