// The Executor by itself, with a Group: the test is its lane and its transport.
#include "engine/lane/executor.h"

#include <gtest/gtest.h>

#include <new>

#include "engine/group/fake_host.h"
#include "support/fake_transport.h"
#include "support/requests.h"

namespace ringdist {
namespace {

constexpr int kSize = 2;
constexpr int64_t kSegmentBytes = 4096;

// Rank 0 of it, and a process for each rank unless `contexts` says otherwise.
std::shared_ptr<Seat> make_group(Executor& executor, uint64_t nonce, Transport& transport,
                                 const std::vector<ContextId>& contexts = {1, 2}) {
  GroupConfig config;
  config.name = "test";
  config.early_window = EarlyCredit::kSegments * kSegmentBytes;
  Membership membership;
  membership.nonce = nonce;
  for (const ContextId context : contexts)
    membership.members.push_back({context, &transport, context == 1 ? "here" : "there"});
  auto seat = std::make_shared<Seat>(executor, 0, membership.size(), config);
  executor.add(seat);
  executor.form(seat, membership);
  return seat;
}

// An allreduce of rank 0, over `direct`; its memory outlives it.
std::shared_ptr<Op> make_op(std::vector<float>& data) {
  Planner planner({0, kSize, "direct", false, kSegmentBytes});
  auto op = planned_op(planner, allreduce_request(data, DType::kFloat32, ReduceOp::kSum), 1);
  op->started = Clock::now();
  op->deadline = op->started + std::chrono::minutes(1);
  return op;
}

class FakeLaneHost final : public LaneHost {
 public:
  bool run_elsewhere(std::function<void()> task) override {
    if (--threads < 0) throw std::bad_alloc();
    task();
    return true;
  }
  void flood(const Notice& notice) override {
    if (--words < 0) throw std::bad_alloc();
    flooded.push_back(notice);
  }

  int threads = 1 << 20;  // so many more tasks run
  int words = 1 << 20;
  std::vector<Notice> flooded;
};

class ExecutorTest : public testing::Test {
 protected:
  ExecutorTest() { EXPECT_TRUE(token_.take()); }
  void run_work() {
    while (executor_.run_work()) {
    }
  }

  Statistics statistics_;
  FakeLaneHost host_;
  Token token_;
  Executor executor_{statistics_, int64_t{1} << 24, token_, host_};
  FakeTransport transport_{[this](Ticket ticket) { executor_.on_sent(ticket, {}); }};
};

using ExecutorDeathTest = ExecutorTest;

TEST_F(ExecutorDeathTest, WorksForTheTokensHolderOnly) {
  token_.release(nullptr);
  EXPECT_DEATH(executor_.run_work(), "without its token");
  EXPECT_DEATH(executor_.on_message({}, {}), "without its token");
  EXPECT_DEATH((void)executor_.idle(), "without its token");
  EXPECT_DEATH((void)executor_.dump(), "without its token");
  EXPECT_TRUE(token_.take());
}

// After a failure the user destroys the group, while what it sent may still be on its way.
TEST_F(ExecutorTest, ASendMayEndAfterItsGroup) {
  std::vector<float> data(10000, 1.0f);
  transport_.ends_sends = false;
  auto group = make_group(executor_, 7, transport_);
  auto op = make_op(data);
  executor_.enqueue(group, op);
  run_work();
  ASSERT_GT(transport_.held(), 0u);
  executor_.fail(group, Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
  EXPECT_TRUE(op->finished());
  executor_.remove(group);
  const std::weak_ptr<Seat> gone = group;
  group.reset();
  ASSERT_TRUE(gone.expired());
  const std::weak_ptr<Op> held = op;
  op.reset();
  EXPECT_FALSE(held.expired()) << "the transport reads its tensors still";
  transport_.end_sends();  // to nobody: sanitizers see a Run that is gone
  EXPECT_TRUE(held.expired());
}

TEST_F(ExecutorTest, CallbacksThatFindNoThreadRunLater) {
  std::vector<float> data(4, 1.0f);
  auto group = make_group(executor_, 7, transport_);
  auto op = make_op(data);
  int called = 0;
  for (int i = 0; i < 2; ++i) op->when_finished([&] { ++called; });
  executor_.enqueue(group, op);
  host_.threads = 0;
  executor_.fail(group, Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
  EXPECT_TRUE(op->finished());
  EXPECT_EQ(called, 0);
  EXPECT_FALSE(executor_.idle()) << "the lane must come back to it";
  host_.threads = 1;
  executor_.set_now(Clock::now() + std::chrono::seconds(1));
  executor_.tick();
  EXPECT_EQ(called, 2);
  EXPECT_TRUE(executor_.idle());
  executor_.remove(group);
}

TEST_F(ExecutorTest, AGroupWhoseWordsAreLostKeepsNoOtherFromEnding) {
  std::vector<std::shared_ptr<Seat>> groups;
  for (const uint64_t nonce : {7, 8, 9}) groups.push_back(make_group(executor_, nonce, transport_));
  host_.words = 0;
  executor_.fail_all(Error(ErrorKind::kSystem, "no memory"));
  for (const auto& group : groups) EXPECT_TRUE(group->failure());
  EXPECT_TRUE(host_.flooded.empty());
  host_.words = 3;
  executor_.set_now(Clock::now() + std::chrono::seconds(1));
  executor_.tick();
  EXPECT_EQ(host_.flooded.size(), 3u) << "each is told when it can be";
  for (const auto& group : groups) executor_.remove(group);
}

// Two ranks of a group live in one Context, and one of them has formed.
TEST_F(ExecutorTest, ANoticeWaitsForTheRankThatStillForms) {
  auto first = make_group(executor_, 9, transport_, {1, 1, 2});
  Membership membership;
  membership.nonce = 9;
  membership.rank = 1;
  for (const ContextId context : {1, 1, 2})
    membership.members.push_back({context, &transport_, "somewhere"});
  auto second = std::make_shared<Seat>(executor_, 1, 3, GroupConfig{"test", 4096, {}, nullptr});
  executor_.add(second);
  executor_.expect(second, 9);
  executor_.on_notice(test::leave_notice(9, 2, 0));
  executor_.form(second, membership);
  for (const auto& seat : {first, second}) {
    std::vector<float> data(4, 1.0f);
    Planner planner({seat->rank(), 3, "direct", false, kSegmentBytes});
    auto op = planned_op(planner, allreduce_request(data, DType::kFloat32, ReduceOp::kSum), 1);
    op->started = Clock::now();
    op->deadline = op->started + std::chrono::minutes(1);
    executor_.enqueue(seat, op);
    EXPECT_TRUE(op->finished()) << seat->rank();
    EXPECT_NE(op->error().message().find("rank 2"), std::string::npos) << op->error().message();
    executor_.remove(seat);
  }
}

TEST_F(ExecutorTest, AMessageOfAnotherGenerationIsDropped) {
  auto group = make_group(executor_, 7, transport_);
  MessageHeader header{};
  header.type = MessageType::kData;
  header.nonce = 7;
  header.source = 1;
  header.op = 1;
  for (const uint32_t generation : {1u, 0u}) {
    header.generation = generation;
    executor_.on_message(header_bytes(header), {});
    EXPECT_EQ(statistics_.messages_received, generation == 0 ? 1 : 0);
  }
  executor_.remove(group);
}

// Of two ranks of a process one leaves in good order; then the process dies.
TEST_F(ExecutorTest, TheOtherRanksOfALeaversProcessMayDie) {
  auto group = make_group(executor_, 9, transport_, {1, 2, 2});
  executor_.on_notice(test::leave_notice(9, 1, 5));
  executor_.process_lost(2, Error(ErrorKind::kPeerLost, "its process died"));
  std::vector<float> data(4);
  OpRequest request = allreduce_request(data, DType::kFloat32, ReduceOp::kNone);
  request.endpoint = Endpoint{2, 0, false};
  request.kind = Collective::kPointToPoint;
  auto op = std::make_shared<Op>(std::move(request));
  op->started = Clock::now();
  op->deadline = op->started + std::chrono::minutes(1);
  executor_.enqueue(group, op);
  ASSERT_TRUE(op->finished());
  EXPECT_NE(op->error().message().find("rank 2"), std::string::npos) << op->error().what();
  EXPECT_NE(op->error().message().find("died"), std::string::npos) << op->error().what();
  executor_.remove(group);
}

}  // namespace
}  // namespace ringdist
