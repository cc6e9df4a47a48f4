// Lifetime of the memory that a send reads. The transport may read it after the op has ended.
#include "engine/op/arithmetic.h"

#include <gtest/gtest.h>

#include "support/requests.h"

namespace ringdist {
namespace {

struct Sent {
  bool from_scratch = false;
  PooledBuffer held;
};

// Returns the result of view() for the first segment of each send step.
std::vector<Sent> sends_of(OpRequest request, const std::string& algorithm, int size) {
  Planner planner({0, size, algorithm, false, 4096});
  const auto op = planned_op(planner, std::move(request), 1);
  const auto pool = std::make_shared<ScratchPool>();
  std::vector<Sent> out;
  const auto arithmetic =
      plain_arithmetic(*op, size, StoreMode::kCached, {*std::pmr::get_default_resource(), pool});
  for (size_t i = 0; i < op->schedule->steps.size(); ++i) {
    const Step& step = op->schedule->steps[i].step;
    if (step.kind != StepKind::kSend) continue;
    Sent& sent = out.emplace_back();
    sent.from_scratch = step.range.buffer == BufferId::kScratch;
    (void)arithmetic->view(static_cast<int>(i), 0, sent.held);
  }
  return out;
}

void expect_scratch_is_held(const std::vector<Sent>& sends) {
  size_t from_scratch = 0;
  for (const Sent& sent : sends) {
    EXPECT_EQ(static_cast<bool>(sent.held), sent.from_scratch);
    from_scratch += sent.from_scratch ? 1 : 0;
  }
  EXPECT_GT(from_scratch, 0u);
}

TEST(PlainArithmetic, ABarriersSignalOutlivesTheOp) {
  OpRequest request;
  request.kind = Collective::kBarrier;
  request.dtype = DType::kBytes;
  expect_scratch_is_held(sends_of(std::move(request), "", 4));
}

TEST(PlainArithmetic, PartialSumsOutliveTheOp) {
  std::vector<float> data(4 * 300, 1.0f);
  std::vector<float> part(300);
  OpRequest request = allreduce_request(part, DType::kFloat32, ReduceOp::kSum);
  request.kind = Collective::kReduceScatter;
  request.input = Buffer(sizeof(float));
  request.input.append(data.data(), std::ssize(data));
  expect_scratch_is_held(sends_of(std::move(request), "ring", 4));
}

TEST(PlainArithmetic, TensorsAreTheOps) {
  std::vector<float> data(1000, 1.0f);
  for (const Sent& sent :
       sends_of(allreduce_request(data, DType::kFloat32, ReduceOp::kSum), "ring", 4)) {
    EXPECT_FALSE(sent.from_scratch);
    EXPECT_FALSE(sent.held);
  }
}

}  // namespace
}  // namespace ringdist
