// Memory exhaustion on a lane, at each allocation of an op in turn. The group may fail, but then
// all others must be notified, and all resources must be returned.
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/progress/dispatcher.h"
#include "engine/progress/lone_progress_engine.h"
#include "support/replaced_new.h"

namespace ringdist::test {
namespace {

OpRequest request(std::vector<float>& data, const char* codec) {
  OpRequest out = allreduce_request(data, DType::kFloat32, ReduceOp::kSum);
  if (*codec == '\0') return out;
  auto blocks = std::make_shared<CodecMap>();
  blocks->parts.push_back({0, out.count, parse_codec_pair(codec, 2).value(), nullptr});
  out.codec_map = std::move(blocks);
  return out;
}

// Returns true if there were fewer allocations than `turn`. If no memory is left for the failure
// of the group either, the op ends at its deadline.
bool survives(const char* codec, size_t turn, size_t in_a_row) {
  LoneProgressEngine progress;
  progress.transport.takes_no_memory = true;  // allocations of the transport are not tested here
  int told = 0;
  const auto slot = progress.make_group(7, {1, 2}, [&](const Error&) { ++told; });
  std::vector<float> data(10000, 1.0f);
  const auto op = LoneProgressEngine::make_op(request(data, codec));
  int called_back = 0;
  op->when_finished([&] { ++called_back; });
  Failures failing{turn, in_a_row};
  {
    const FailingAllocations now(failing);
    progress.dispatcher.enqueue(slot, op);
    const auto work = [&] { return progress.dispatcher.run_work(); };
    while (fail_all_if_thrown(progress.dispatcher, work) && !slot->failure()) {  // like the lane
    }
  }
  const bool failed = failing.over() || failing.count < in_a_row;
  EXPECT_EQ(progress.transport.reserved(), 0) << "memory of the transport's was not given back";
  for (int round = 1; failed && round <= 2; ++round)  // memory is available again
    progress.pass(round * std::chrono::minutes(2));
  EXPECT_EQ(op->finished(), failed);
  EXPECT_EQ(called_back, failed ? 1 : 0);
  EXPECT_EQ(std::ranges::count(progress.delegate.flooded, NoticeKind::kAbort, &Notice::kind),
            failed ? 1 : 0);
  EXPECT_EQ(told, failed ? 1 : 0);
  progress.dispatcher.remove(slot);
  return !failed;
}

TEST(LaneMemory, AnyAllocationOfAnOpMayFail) {
  for (const char* codec : {"", "int8"}) {
    for (const size_t in_a_row : {1, 2, 3, 8, 64}) {
      size_t turn = 1;
      for (; !testing::Test::HasFailure() && !survives(codec, turn, in_a_row); ++turn)
        ASSERT_LT(turn, 10000u);
      EXPECT_FALSE(testing::Test::HasFailure())
          << in_a_row << " from allocation " << turn << " on, codec '" << codec << "'";
      EXPECT_GT(turn, 10u);
    }
  }
}

}  // namespace
}  // namespace ringdist::test
