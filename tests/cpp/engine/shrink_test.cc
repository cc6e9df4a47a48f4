// Groups that lose members and go on: of ranks that are threads with a Context each. A Context that
// is shut down is gone for good, as its process would be.
#include <gtest/gtest.h>

#include <future>

#include "support/ranks.h"

namespace ringdist {
namespace {

// Of one of each rank; the error, if it fails.
Result<float> sum_of_ones(Communicator& group) {
  std::vector<float> values(64, 1.0f);
  if (Error error = run_op(group, allreduce_request(values, DType::kFloat32, ReduceOp::kSum)))
    return error;
  return values.back();
}

RanksOptions of_size(int size) {
  RanksOptions out;
  out.size = size;
  return out;
}

Shrunk must_shrink(Communicator& group) {
  auto out = group.shrink(Milliseconds(20000));
  EXPECT_TRUE(out.ok()) << out.error().what();
  return out.ok() ? out.value() : Shrunk{};
}

TEST(Shrink, OneOfFourIsLostAndTheOthersGoOn) {
  Ranks ranks(of_size(4));
  ranks.run([&](int rank) { EXPECT_EQ(sum_of_ones(ranks[rank]).value(), 4.0f); });
  ranks.context(2).shutdown();
  std::vector<Shrunk> outcomes(4);
  ranks.run([&](int rank) {
    if (rank == 2) return;
    outcomes[rank] = must_shrink(ranks[rank]);
    ASSERT_NE(outcomes[rank].group, nullptr);
    const auto result = sum_of_ones(*outcomes[rank].group);
    ASSERT_TRUE(result.ok()) << result.error().what();
    EXPECT_EQ(result.value(), 3.0f);
  });
  for (const int rank : {0, 1, 3}) {
    const Shrunk& one = outcomes[rank];
    EXPECT_EQ(one.generation, 1u);
    EXPECT_EQ(one.stayed, (std::vector<int>{0, 1, 3}));
    ASSERT_EQ(one.lost.size(), 1u);
    EXPECT_EQ(one.lost[0].rank, 2);
    EXPECT_EQ(one.first_unfinished, 2u);
    EXPECT_EQ(one.group->members(), (std::vector<int>{0, 1, 3}));
  }
}

}  // namespace
}  // namespace ringdist
