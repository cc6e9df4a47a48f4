// Dispatcher: handling of groups, ops, notices and deaths.
#include "engine/progress/dispatcher.h"

#include <gtest/gtest.h>

#include "engine/group/fake_group_delegate.h"
#include "engine/progress/lone_progress_engine.h"

namespace ringdist::test {
namespace {

class DispatcherTest : public testing::Test, protected LoneProgressEngine {};

using DispatcherDeathTest = DispatcherTest;

TEST_F(DispatcherDeathTest, WorksForTheTokensHolderOnly) {
  lock.release(nullptr);
  EXPECT_DEATH(dispatcher.run_work(), "without the progress lock");
  EXPECT_DEATH(dispatcher.on_message(0, {}, {}), "without the progress lock");
  EXPECT_DEATH((void)dispatcher.idle(), "without the progress lock");
  EXPECT_DEATH((void)dispatcher.dump(), "without the progress lock");
  EXPECT_TRUE(lock.take());
}

// After a failure the user destroys the group, while its messages may still be in flight.
TEST_F(DispatcherTest, ASendMayEndAfterItsGroup) {
  std::vector<float> data(10000, 1.0f);
  transport.ends_sends = false;
  auto group = make_group(7);
  auto op = make_op(data);
  dispatcher.enqueue(group, op);
  while (dispatcher.run_work()) {
  }
  ASSERT_GT(transport.held(), 0u);
  group->fail(Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
  EXPECT_TRUE(op->finished());
  dispatcher.remove(group);
  const std::weak_ptr<GroupSlot> departed = group;
  group.reset();
  ASSERT_TRUE(departed.expired());
  const std::weak_ptr<Op> held = op;
  op.reset();
  EXPECT_FALSE(held.expired()) << "the transport reads its tensors still";
  transport.end_sends();  // the OpExecution is gone, so sanitizers detect any access to it
  EXPECT_TRUE(held.expired());
}

TEST_F(DispatcherTest, CallbacksThatFindNoThreadRunLater) {
  std::vector<float> data(4, 1.0f);
  auto group = make_group(7);
  auto op = make_op(data);
  int called = 0;
  for (int i = 0; i < 2; ++i) op->when_finished([&] { ++called; });
  dispatcher.enqueue(group, op);
  delegate.threads = 0;
  group->fail(Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
  EXPECT_TRUE(op->finished());
  EXPECT_EQ(called, 0);
  EXPECT_FALSE(dispatcher.idle()) << "the lane must come back to it";
  delegate.threads = 1;
  pass(std::chrono::seconds(1));
  EXPECT_EQ(called, 2);
  EXPECT_TRUE(dispatcher.idle());
  dispatcher.remove(group);
}

TEST_F(DispatcherTest, AGroupWhoseWordsAreLostKeepsNoOtherFromEnding) {
  std::vector<std::shared_ptr<GroupSlot>> groups;
  for (const uint64_t nonce : {7, 8, 9}) groups.push_back(make_group(nonce));
  delegate.words = 0;
  dispatcher.fail_all(Error(ErrorKind::kSystem, "no memory"));
  for (const auto& group : groups) EXPECT_TRUE(group->failure());
  EXPECT_TRUE(delegate.flooded.empty());
  delegate.words = 3;
  pass(std::chrono::seconds(1));
  EXPECT_EQ(delegate.flooded.size(), 3u) << "each is told when it can be";
  for (const auto& group : groups) dispatcher.remove(group);
}

// Two ranks of a group live in one Context, and one of them has formed.
TEST_F(DispatcherTest, ANoticeWaitsForTheRankThatStillForms) {
  auto first = make_group(9, {1, 1, 2});
  const GroupDescriptor members = membership(9, {1, 1, 2}, /*rank=*/1);
  auto second = add(members);
  dispatcher.set_nonce(second, 9);
  dispatcher.on_notice(leave_notice(9, 2, 0));
  dispatcher.form(second, members);
  for (const auto& slot : {first, second}) {
    std::vector<float> data(4, 1.0f);
    auto op = make_op(data, slot->rank(), 3);
    dispatcher.enqueue(slot, op);
    EXPECT_TRUE(op->finished()) << slot->rank();
    EXPECT_NE(op->error().message().find("rank 2"), std::string::npos) << op->error().message();
    dispatcher.remove(slot);
  }
}

TEST_F(DispatcherTest, NobodyStaysAwakeForAGroupThatForms) {
  EXPECT_EQ(dispatcher.wait(), Backoff::Wait::kNothing);
  const GroupDescriptor members = membership(9, {1, 2});
  const auto group = add(members);
  std::vector<float> data(4, 1.0f);
  dispatcher.enqueue(group, make_op(data));
  EXPECT_FALSE(dispatcher.idle());
  EXPECT_EQ(dispatcher.wait(), Backoff::Wait::kNothing);
  dispatcher.form(group, members);
  while (dispatcher.run_work()) continue;
  EXPECT_EQ(dispatcher.wait(), Backoff::Wait::kNear);
  dispatcher.remove(group);
}

// The cost must not depend on the number of idle groups, because a blocking op queries several
// times if the lane is idle.
TEST_F(DispatcherTest, GroupsWithoutOpsAreNotLookedAt) {
  std::vector<std::shared_ptr<GroupSlot>> groups;
  for (uint64_t nonce = 1; nonce <= 100; ++nonce) groups.push_back(make_group(nonce));
  EXPECT_TRUE(dispatcher.idle());
  EXPECT_EQ(dispatcher.watched(), 0u);
  std::vector<float> data(4, 1.0f);
  dispatcher.enqueue(groups[50], make_op(data));
  EXPECT_FALSE(dispatcher.idle());
  EXPECT_EQ(dispatcher.wait(), Backoff::Wait::kNear);
  EXPECT_EQ(dispatcher.watched(), 1u);
  groups[50]->fail(Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
  while (dispatcher.run_work()) continue;
  EXPECT_TRUE(dispatcher.idle());
  EXPECT_EQ(dispatcher.watched(), 0u);
  dispatcher.remove(groups[70]);
  dispatcher.enqueue(groups[70], make_op(data));  // has no effect after the removal
  groups.erase(groups.begin() + 70);
  EXPECT_TRUE(dispatcher.idle());
  EXPECT_EQ(dispatcher.watched(), 0u);
  for (const auto& group : groups) dispatcher.remove(group);
}

TEST_F(DispatcherTest, AMessageOfAnotherGenerationIsDropped) {
  auto group = make_group(7);
  MessageHeader header{};
  header.type = MessageType::kData;
  header.eager = 1;
  header.nonce = 7;
  header.source = 1;
  header.op = 1;
  for (const uint32_t generation : {1u, 0u}) {
    header.generation = generation;
    dispatcher.on_message(/*from=*/2, header_bytes(header), {});
    EXPECT_EQ(statistics.messages_received, generation == 0 ? 1 : 0);
  }
  dispatcher.remove(group);
}

// The group may form after the message has come.
TEST_F(DispatcherTest, AMessageOfAnotherProcessIsDropped) {
  MessageHeader header{};
  header.type = MessageType::kData;
  header.eager = 1;
  header.nonce = 7;
  header.source = 1;
  header.op = 1;
  dispatcher.on_message(/*from=*/3, header_bytes(header), {});
  dispatcher.on_message(/*from=*/2, header_bytes(header), {});
  auto group = make_group(7);
  EXPECT_EQ(statistics.messages_received, 1);
  dispatcher.on_message(/*from=*/3, header_bytes(header), {});
  EXPECT_EQ(statistics.messages_received, 1);
  dispatcher.remove(group);
}

// Two ranks share a process. One of them leaves in good order, then the process dies.
TEST_F(DispatcherTest, TheOtherRanksOfALeaversProcessMayDie) {
  auto group = make_group(9, {1, 2, 2});
  dispatcher.on_notice(leave_notice(9, 1, 5));
  dispatcher.process_lost(2, Error(ErrorKind::kPeerLost, "its process died"));
  std::vector<float> data(4);
  OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
  request.envelope = Envelope{2, 0, false};
  request.kind = Collective::kPointToPoint;
  auto op = make_op(std::move(request), 0, 3);
  dispatcher.enqueue(group, op);
  ASSERT_TRUE(op->finished());
  EXPECT_NE(op->error().message().find("rank 2"), std::string::npos) << op->error().what();
  EXPECT_NE(op->error().message().find("died"), std::string::npos) << op->error().what();
  dispatcher.remove(group);
}

}  // namespace
}  // namespace ringdist::test
