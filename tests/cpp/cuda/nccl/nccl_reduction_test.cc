#include "cuda/nccl/nccl_reduction.h"

#include <gtest/gtest.h>

namespace ringdist::gpu {
namespace {

TEST(NcclReductionTest, CountsComplexNumbersAsTwo) {
  const auto sum = nccl_reduction(DType::kComplex64, ReduceOp::kSum, true);
  ASSERT_TRUE(sum);
  EXPECT_EQ(sum->type, NcclType::kFloat32);
  EXPECT_EQ(sum->numbers, 2);
  EXPECT_FALSE(nccl_reduction(DType::kComplex64, ReduceOp::kProduct, true));
}

TEST(NcclReductionTest, LeavesWhatGivesOtherResults) {
  EXPECT_FALSE(nccl_reduction(DType::kFloat32, ReduceOp::kMax, true));
  EXPECT_FALSE(nccl_reduction(DType::kBFloat16, ReduceOp::kMin, true));
  EXPECT_FALSE(nccl_reduction(DType::kInt32, ReduceOp::kAvg, true));
  EXPECT_FALSE(nccl_reduction(DType::kBool, ReduceOp::kSum, true));
  EXPECT_TRUE(nccl_reduction(DType::kInt32, ReduceOp::kMax, true));
  EXPECT_TRUE(nccl_reduction(DType::kFloat16, ReduceOp::kAvg, true));
}

TEST(NcclReductionTest, TakesFp8WhereNcclHasIt) {
  EXPECT_FALSE(nccl_reduction(DType::kFloat8E4M3FN, ReduceOp::kSum, false));
  EXPECT_TRUE(nccl_reduction(DType::kFloat8E4M3FN, ReduceOp::kSum, true));
  EXPECT_FALSE(nccl_reduction(DType::kFloat8E4M3FN, ReduceOp::kAvg, true));
  EXPECT_FALSE(nccl_reduction(DType::kFloat8E5M2, ReduceOp::kAvg, true));
}

// Each reduction that NCCL gets must also exist on the CPU.
TEST(NcclReductionTest, HasNothingThatTheCpuHasNot) {
  for (int d = 0; d <= static_cast<int>(DType::kFloat8E5M2); ++d)
    for (const ReduceOp op : all_reduce_ops()) {
      const auto dtype = static_cast<DType>(d);
      if (nccl_reduction(dtype, op, true)) {
        EXPECT_TRUE(is_reducible(dtype, op)) << dtype_name(dtype) << " " << reduce_op_name(op);
      }
    }
}

}  // namespace
}  // namespace ringdist::gpu
