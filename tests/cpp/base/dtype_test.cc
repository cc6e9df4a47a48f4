#include "base/dtype.h"

#include <gtest/gtest.h>

namespace ringdist {
namespace {

// The numbers are on the wire: a changed one breaks groups of mixed versions.
TEST(DType, NumbersNamesAndSizes) {
  struct Row {
    int number;
    const char* name;
    size_t size;
  };
  for (const Row& row :
       {Row{0, "float64", 8}, Row{1, "float32", 4}, Row{2, "bfloat16", 2}, Row{3, "float16", 2},
        Row{4, "int64", 8}, Row{5, "int32", 4}, Row{6, "int16", 2}, Row{7, "int8", 1},
        Row{8, "uint8", 1}, Row{9, "bytes", 1}, Row{16, "complex128", 16}}) {
    const auto dtype = static_cast<DType>(row.number);
    EXPECT_EQ(dtype_name(dtype), row.name);
    EXPECT_EQ(dtype_size(dtype), row.size);
    EXPECT_EQ(is_reducible(dtype), row.number <= 8);
  }
}

TEST(DType, NamesOfAnyNumberAreSafe) {
  for (int number = 0; number < 256; ++number) {
    EXPECT_FALSE(dtype_name(static_cast<DType>(number)).empty());
    EXPECT_FALSE(reduce_op_name(static_cast<ReduceOp>(number)).empty());
  }
  EXPECT_EQ(dtype_name(static_cast<DType>(255)), "unknown dtype");
  EXPECT_EQ(reduce_op_name(static_cast<ReduceOp>(255)), "unknown reduction");
}

TEST(DType, Halves) {
  EXPECT_TRUE(is_half(DType::kFloat16));
  EXPECT_TRUE(is_half(DType::kBFloat16));
  EXPECT_FALSE(is_half(DType::kFloat32));
  EXPECT_FALSE(is_half(DType::kInt16));
}

TEST(ReduceOp, Names) {
  EXPECT_EQ(reduce_op_name(ReduceOp::kSum), "SUM");
  EXPECT_EQ(reduce_op_name(ReduceOp::kAvg), "AVG");
  EXPECT_EQ(reduce_op_name(ReduceOp::kMin), "MIN");
  EXPECT_EQ(reduce_op_name(ReduceOp::kMax), "MAX");
  EXPECT_EQ(reduce_op_name(ReduceOp::kProduct), "PRODUCT");
}

}  // namespace
}  // namespace ringdist
