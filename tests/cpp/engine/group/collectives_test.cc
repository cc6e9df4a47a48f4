// The Collectives of a group without the rest of it: barriers with the ops before them, and
// messages that arrive before their op.
#include "engine/group/collectives.h"

#include <gtest/gtest.h>

#include "engine/op/fake_execution_delegate.h"

namespace ringdist::test {
namespace {

class CollectivesTest : public testing::Test {
 protected:
  std::shared_ptr<Op> call(Collective kind, bool output_staged = false) {
    OpRequest request = allreduce_request(data_, DType::kFloat32, ReduceOp::kSum);
    request.output_staged = output_staged;
    if (kind == Collective::kBarrier) {
      request = {};
      request.kind = kind;
      request.dtype = DType::kBytes;
    }
    auto op = planned_op(planner_, std::move(request), ++calls_);
    collectives_.called(*op);
    return op;
  }
  // Starts an op.
  std::shared_ptr<Op> start(bool output_staged = false) {
    auto op = call(Collective::kAllreduce, output_staged);
    EXPECT_FALSE(collectives_.keep(op));
    (void)collectives_.start(op);
    return op;
  }
  void finish(uint64_t number) { collectives_.finished(*collectives_.find(number)); }
  bool store_unexpected(uint64_t number) {
    MessageHeader header{};
    header.op = number;
    return collectives_.store_unexpected(header, {});
  }

  std::vector<float> data_ = std::vector<float>(4, 1.0f);
  Statistics statistics_;
  ProgressState progress_{statistics_, int64_t{1} << 24};
  FakeExecutionDelegate delegate_{progress_, 0, 2};
  Planner planner_{{0, 2, "", false, kRunSegment}};
  uint64_t calls_ = 0;
  std::vector<OpExecutionPtr> retired_;
  Collectives collectives_{delegate_, [this](OpExecutionPtr&& run) {
                             run->stop();
                             retired_.push_back(std::move(run));
                           }};
};

TEST_F(CollectivesTest, KnowsTheOldestAndTheNewest) {
  EXPECT_EQ(collectives_.oldest(), nullptr);
  EXPECT_EQ(collectives_.first_open(), 1u);
  EXPECT_EQ(collectives_.last_ended(), 0u);
  for (int i = 0; i < 3; ++i) (void)start();
  EXPECT_EQ(collectives_.oldest()->number(), 1u);
  EXPECT_EQ(collectives_.last_running(), 3u);
  finish(1);
  finish(3);
  EXPECT_EQ(collectives_.oldest()->number(), collectives_.last_running());
  EXPECT_EQ(collectives_.first_open(), 2u);
  EXPECT_EQ(collectives_.last_ended(), 1u);
  finish(2);
  EXPECT_EQ(collectives_.first_open(), 4u);
  EXPECT_EQ(collectives_.last_ended(), 3u);
  EXPECT_EQ(retired_.size(), 3u);
  EXPECT_TRUE(collectives_.idle());
}

TEST_F(CollectivesTest, ABarrierWaitsForWhatRuns) {
  (void)start();
  const auto barrier = call(Collective::kBarrier);
  ASSERT_TRUE(collectives_.keep(barrier));
  const auto after = start();  // need not wait
  EXPECT_EQ(collectives_.take_barrier(), nullptr);
  finish(after->number);
  EXPECT_EQ(collectives_.take_barrier(), nullptr);
  finish(1);
  EXPECT_EQ(collectives_.take_barrier(), barrier);
  EXPECT_EQ(collectives_.take_barrier(), nullptr);
}

TEST_F(CollectivesTest, ABarrierWaitsForResultsThatAreOnTheirWay) {
  const auto op = start(/*hands_over=*/true);
  finish(op->number);
  const auto barrier = call(Collective::kBarrier);
  ASSERT_TRUE(collectives_.keep(barrier));
  collectives_.output_delivered(op->number);
  EXPECT_EQ(collectives_.take_barrier(), barrier);
}

TEST_F(CollectivesTest, BarriersKeepTheirOrder) {
  (void)start();
  const auto first = call(Collective::kBarrier);
  const auto second = call(Collective::kBarrier);
  ASSERT_TRUE(collectives_.keep(first));
  ASSERT_TRUE(collectives_.keep(second));
  finish(1);
  ASSERT_EQ(collectives_.take_barrier(), first);
  (void)collectives_.start(first);
  EXPECT_EQ(collectives_.take_barrier(), nullptr) << "the first has not ended";
  finish(first->number);
  EXPECT_EQ(collectives_.take_barrier(), second);
}

TEST_F(CollectivesTest, MessagesWaitForTheirOp) {
  (void)start();
  EXPECT_FALSE(store_unexpected(1)) << "it runs";
  EXPECT_TRUE(store_unexpected(2));
  EXPECT_TRUE(store_unexpected(2));
  EXPECT_TRUE(store_unexpected(3));
  EXPECT_NE(collectives_.dump_unexpected().find("parked for op #2: 2 messages"), std::string::npos);
  const auto barrier = call(Collective::kBarrier);
  ASSERT_TRUE(collectives_.keep(barrier));
  EXPECT_TRUE(store_unexpected(2)) << "called, and not begun";
  finish(1);
  EXPECT_EQ(collectives_.start(collectives_.take_barrier()).size(), 3u);
  finish(2);
  EXPECT_FALSE(store_unexpected(1)) << "it has ended";
}

TEST_F(CollectivesTest, StopTellsEachOfThem) {
  (void)start();
  (void)start();
  const auto barrier = call(Collective::kBarrier);
  ASSERT_TRUE(collectives_.keep(barrier));
  (void)store_unexpected(9);
  std::vector<uint64_t> told;
  int begun = 0;
  collectives_.stop([&](const std::shared_ptr<Op>& op, const ringdist::OpExecution* run) {
    told.push_back(op->number);
    begun += run != nullptr ? 1 : 0;
  });
  EXPECT_EQ(told, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(begun, 2);
  EXPECT_EQ(retired_.size(), 2u);
  EXPECT_TRUE(collectives_.idle());
  EXPECT_TRUE(collectives_.dump_unexpected().empty());
}

// A failure may throw halfway if memory runs out.
TEST_F(CollectivesTest, StopGoesOnWhereItThrew) {
  (void)start();
  (void)start();
  const auto throws = [](const std::shared_ptr<Op>& op, const ringdist::OpExecution*) {
    if (op->number == 2) throw std::bad_alloc();
  };
  ASSERT_FALSE(progress_.work.empty());
  EXPECT_THROW(collectives_.stop(throws), std::bad_alloc);
  EXPECT_TRUE(progress_.work.empty()) << "what was told, or about to be, runs on";
  std::vector<uint64_t> told;
  collectives_.stop([&](const std::shared_ptr<Op>& op, const ringdist::OpExecution*) {
    told.push_back(op->number);
  });
  EXPECT_EQ(told, std::vector<uint64_t>{2});
}

}  // namespace
}  // namespace ringdist::test
