// The Executor by itself, with a Group: the test is its lane and its transport.
#include "engine/lane/executor.h"

#include <gtest/gtest.h>

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
  void run_elsewhere(std::function<void()> task) override { task(); }
  void flood(const Notice&) override {}
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
  EXPECT_TRUE(token_.take());
}

// After a failure the user destroys the group, while what it sent may still be on its way.
TEST_F(ExecutorTest, ASendMayEndAfterItsGroup) {
  std::vector<float> data(10000, 1.0f);
  transport_.ends_sends = false;
  auto group = make_group(executor_, 7, transport_);
  auto op = make_op(data);
  group->enqueue(op);
  run_work();
  ASSERT_GT(transport_.held(), 0u);
  group->fail(Error(ErrorKind::kAborted, "for a test"), /*tell_others=*/false);
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
  group->enqueue(op);
  ASSERT_TRUE(op->finished());
  EXPECT_NE(op->error().message().find("rank 2"), std::string::npos) << op->error().what();
  EXPECT_NE(op->error().message().find("died"), std::string::npos) << op->error().what();
  executor_.remove(group);
}

}  // namespace
}  // namespace ringdist
