// Ops on devices as ops of Groups, tested without devices and threads, and with a clock that the
// test moves.
#include <gtest/gtest.h>

#include "engine/group/members.h"

namespace ringdist::test {
namespace {

std::shared_ptr<Op> call_on_device(Member& member, OpRequest request) {
  request.device_stream = DeviceStream{3, nullptr};
  request.on_device = true;
  return member.call(std::move(request));
}

std::shared_ptr<Op> device_allreduce(Member& member, ReduceOp op = ReduceOp::kSum) {
  return call_on_device(member, allreduce_request(member.data, DType::kFloat32, op));
}

std::shared_ptr<Op> device_message(Member& member, int peer, bool sends) {
  OpRequest request = allreduce_request(member.data, DType::kFloat32, ReduceOp::kNone);
  request.kind = Collective::kPointToPoint;
  request.envelope = Envelope{peer, 0, sends};
  return call_on_device(member, std::move(request));
}

void device_end(Member& member, const std::shared_ptr<Op>& op, const Error& error = {}) {
  member.group.ended_on_device(op, error);
}

TEST(OnDevice, AnOpEndsWhenTheDeviceSaysSo) {
  Members members(2);
  const auto op = device_allreduce(members[0]);
  EXPECT_FALSE(op->finished());
  EXPECT_FALSE(members[0].group.idle());
  EXPECT_TRUE(members[0].wire.sent.empty()) << "nothing of it goes by messages";
  device_end(members[0], op);
  EXPECT_TRUE(op->finished());
  EXPECT_FALSE(op->error());
  EXPECT_TRUE(members[0].group.idle());
}

TEST(OnDevice, AnOpOfOneRankWaitsForTheDevice) {
  Members members(1);
  const auto op = device_allreduce(members[0]);
  EXPECT_FALSE(op->finished());
  device_end(members[0], op);
  EXPECT_TRUE(op->finished());
}

TEST(OnDevice, OpsOfTheHostGoOnBeside) {
  Members members(2);
  std::vector<std::shared_ptr<Op>> device;
  std::vector<std::shared_ptr<Op>> host;
  for (int rank = 0; rank < 2; ++rank) {
    host.push_back(members[rank].allreduce());
    device.push_back(device_allreduce(members[rank]));
    host.push_back(members[rank].allreduce());
  }
  members.deliver();
  for (const auto& op : host) EXPECT_TRUE(op->finished() && !op->error());
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_FALSE(device[rank]->finished());
    device_end(members[rank], device[rank]);
    EXPECT_TRUE(members[rank].group.idle());
  }
}

TEST(OnDevice, ABarrierOfTheHostWaitsForWhatIsBeforeIt) {
  Members members(2);
  const auto a = device_allreduce(members[0]);
  const auto b = device_allreduce(members[1]);
  const auto barrier = members[0].barrier();
  (void)members[1].barrier();
  device_end(members[1], b);
  members.deliver();
  EXPECT_FALSE(barrier->finished());
  device_end(members[0], a);
  members[0].host.work(members[0].group);
  members.deliver();
  EXPECT_TRUE(barrier->finished());
}

// The device orders its own ops.
TEST(OnDevice, ABarrierOfTheDeviceIsNotKept) {
  Members members(2);
  const auto before = members[0].allreduce();
  OpRequest request;
  request.kind = Collective::kBarrier;
  request.dtype = DType::kBytes;
  const auto barrier = call_on_device(members[0], std::move(request));
  EXPECT_EQ(barrier->describe(), "barrier #2 (on cuda)");
  device_end(members[0], barrier);
  EXPECT_TRUE(barrier->finished());
  EXPECT_FALSE(before->finished());
}

TEST(OnDevice, WhatEndsAnOpThereEndsTheGroup) {
  Members members(2);
  const auto a = device_allreduce(members[0]);
  const auto b = device_allreduce(members[1]);
  const auto message_of_b = device_message(members[1], 0, /*sends=*/false);
  device_end(members[0], a, Error(ErrorKind::kSystem, "an uncorrectable error"));
  members.deliver();
  expect_failed(*a, ErrorKind::kSystem,
                "all_reduce #1 (float32, 4 elements, SUM, on cuda): an uncorrectable error");
  EXPECT_NE(a->error().message().find("may be partly overwritten"), std::string::npos);
  expect_failed(*b, ErrorKind::kSystem, "an uncorrectable error");
  expect_failed(*message_of_b, ErrorKind::kSystem, "an uncorrectable error");
  device_end(members[1], b);  // late
  EXPECT_TRUE(b->error());
}

TEST(OnDevice, ADeadlinePasses) {
  Members members(3);
  const auto op = device_allreduce(members[0]);
  (void)device_allreduce(members[1]);
  members[1].pass(Milliseconds(600));  // sends its status of waiting
  members.deliver();
  members[0].pass(std::chrono::seconds(61));
  expect_failed(*op, ErrorKind::kTimeout, "no sign that it was called by rank 2 (pid 102)");
}

TEST(OnDevice, OneThatAllHaveCalledTakesTooLong) {
  Members members(2);
  const auto op = device_allreduce(members[0]);
  (void)device_allreduce(members[1]);
  members[1].pass(Milliseconds(600));
  members.deliver();
  members[0].pass(std::chrono::seconds(2));
  EXPECT_NE(members[0].group.status().text.find("for device 3, though all ranks have called it"),
            std::string::npos)
      << members[0].group.status().text;
  members[0].pass(std::chrono::seconds(61));
  expect_failed(*op, ErrorKind::kTimeout, "all ranks have called it, but it does not progress");
}

TEST(OnDevice, TheRollCallComparesIt) {
  Members members(2);
  const auto a = device_allreduce(members[0], ReduceOp::kSum);
  const auto b = device_allreduce(members[1], ReduceOp::kMax);
  members.deliver();
  EXPECT_FALSE(a->finished());
  members[0].pass(Milliseconds(600));
  members.deliver();
  for (const auto& op : {a, b}) {
    expect_failed(*op, ErrorKind::kMismatch, "all_reduce(float32, 4 elements, SUM, on cuda)");
    expect_failed(*op, ErrorKind::kMismatch, "all_reduce(float32, 4 elements, MAX, on cuda)");
  }
}

// Covers both orders: the data of the host op finds the device op, or waits for it.
TEST(OnDevice, OneRankCallsItOnTheHost) {
  for (const bool device_first : {true, false}) {
    Members members(2);
    std::shared_ptr<Op> device;
    if (device_first) device = device_allreduce(members[1]);
    const auto host = members[0].allreduce();
    members.deliver(/*notices=*/false);
    if (!device_first) device = device_allreduce(members[1]);
    members.deliver();
    for (const auto& op : {host, device}) {
      expect_failed(*op, ErrorKind::kMismatch, "called all_reduce(float32, 4 elements, SUM)");
      expect_failed(*op, ErrorKind::kMismatch,
                    "called all_reduce(float32, 4 elements, SUM, on cuda)");
      EXPECT_EQ(op->error().message().find("another plan"), std::string::npos);
    }
  }
}

TEST(OnDevice, ADeathEndsWhatIsInFlight) {
  Members members(3);
  const auto before = device_allreduce(members[0]);
  device_end(members[0], before);
  const auto op = device_allreduce(members[0]);
  members[0].group.process_lost(Members::context(2), kKilled);
  EXPECT_FALSE(before->error());
  expect_failed(*op, ErrorKind::kPeerLost, "rank 2 (pid 102) is lost");
  EXPECT_EQ(members[0].host.count(NoticeKind::kAbort), 1);
}

TEST(OnDevice, ADeathEndsMessagesWithThatRank) {
  Members members(3);
  const auto other = device_message(members[0], 1, /*sends=*/true);
  members[0].group.process_lost(Members::context(2), kKilled);
  EXPECT_FALSE(other->finished());
  const auto op = device_message(members[0], 2, /*sends=*/false);
  expect_failed(*op, ErrorKind::kPeerLost, "rank 2 (pid 102) is lost");
}

TEST(OnDevice, ARankLeavesBeforeAnOp) {
  Members members(2);
  const auto first = device_allreduce(members[0]);
  members[0].group.on_notice(leave_notice(kNonce, 1, 1));
  members[0].pass(std::chrono::seconds(2));
  EXPECT_FALSE(first->finished()) << "it took part in that";
  const auto draining = device_allreduce(members[0]);
  EXPECT_FALSE(draining->finished()) << "what is older ends first";
  device_end(members[0], first);
  EXPECT_FALSE(first->error());
  expect_failed(*draining, ErrorKind::kPeerLost, "left the group after op #1");
}

TEST(OnDevice, TheLastOpOfALeaverIsThatBeforeWhatRuns) {
  Members members(2);
  const auto first = device_allreduce(members[0]);
  (void)device_allreduce(members[0]);
  device_end(members[0], first);
  members[0].group.announce_leave(NoticeKind::kLeave);
  ASSERT_FALSE(members[0].host.flooded.empty());
  EXPECT_EQ(members[0].host.flooded.back().op, 1u);
}

// The data may be on this rank's device, which has not yet reached the receive.
TEST(OnDevice, AMessageOutlivesTheGoodEndOfTheOtherRank) {
  Members members(2);
  const auto op = device_message(members[0], 1, /*sends=*/false);
  members[0].group.on_notice(leave_notice(kNonce, 1, 0));
  members[0].pass(std::chrono::seconds(2));
  EXPECT_FALSE(op->finished());
  device_end(members[0], op);
  EXPECT_FALSE(op->error());
}

TEST(OnDevice, MessagesMeetNoneOfTheHost) {
  Members members(2);
  const auto sent = device_message(members[0], 1, /*sends=*/true);
  const auto received = members[1].message(0, /*sends=*/false);
  members.deliver();
  EXPECT_FALSE(received->finished());
  EXPECT_EQ(sent->describe(), "send to rank 1, tag 0 (float32, 4 elements, on cuda)");
  device_end(members[0], sent);
  EXPECT_TRUE(members[0].group.idle());
}

TEST(OnDevice, TheDumpShowsThem) {
  Members members(2);
  (void)device_allreduce(members[0]);
  (void)device_message(members[0], 1, /*sends=*/true);
  const std::string text = members[0].group.dump();
  for (const char* line :
       {"\n   all_reduce #1 (float32, 4 elements, SUM, on cuda): in the hands of "
        "device 3",
        "\n   send to rank 1, tag 0 (float32, 4 elements, on cuda): in the hands "
        "of device 3"})
    EXPECT_NE(text.find(line), std::string::npos) << text;
}

}  // namespace
}  // namespace ringdist::test
