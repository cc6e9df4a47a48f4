#include "base/dtype.h"

#include <gtest/gtest.h>

#include <string>

namespace ringdist {
namespace {

// The numbers are sent on the wire, so a change would break groups of mixed versions.
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

TEST(ReduceOp, NumbersAndNames) {
  const char* const names[] = {"SUM",  "AVG",  "MIN", "MAX",  "PRODUCT",
                               "none", "BAND", "BOR", "BXOR", "PREMUL_SUM"};
  for (int number = 0; number < 10; ++number)
    EXPECT_EQ(reduce_op_name(static_cast<ReduceOp>(number)), names[number]);
}

TEST(ReduceOp, WhatIsReducible) {
  const std::string floats = "float64, float32, bfloat16, float16";
  const std::string integers = "int64, int32, int16, int8, uint8";
  const std::string unsigneds = "uint16, uint32, uint64";
  const std::string complexes = "complex32, complex64, complex128";
  const std::string float8s = "float8_e4m3fn, float8_e5m2";
  const auto join = [](std::initializer_list<std::string> parts) {
    std::string out;
    for (const std::string& part : parts) out += (out.empty() ? "" : ", ") + part;
    return out;
  };
  const auto sums = join({floats, integers, "bool", unsigneds, complexes, float8s});
  const auto scaled = join({floats, integers, unsigneds, complexes, float8s});
  const auto ordered = join({floats, integers, "bool", unsigneds, float8s});
  const auto bits = join({integers, "bool", unsigneds});
  EXPECT_EQ(reducible_dtypes(ReduceOp::kSum), sums);
  EXPECT_EQ(reducible_dtypes(ReduceOp::kProduct), sums);
  EXPECT_EQ(reducible_dtypes(ReduceOp::kAvg), scaled);
  EXPECT_EQ(reducible_dtypes(ReduceOp::kPremulSum), scaled);
  for (ReduceOp op : {ReduceOp::kMin, ReduceOp::kMax}) EXPECT_EQ(reducible_dtypes(op), ordered);
  for (ReduceOp op : {ReduceOp::kBand, ReduceOp::kBor, ReduceOp::kBxor})
    EXPECT_EQ(reducible_dtypes(op), bits);
}

TEST(ReduceOp, NothingReducesWithoutAMeaning) {
  for (int number = 0; number < 256; ++number) {
    EXPECT_FALSE(is_reducible(DType::kBytes, static_cast<ReduceOp>(number)));
    EXPECT_FALSE(is_reducible(static_cast<DType>(number), ReduceOp::kNone));
  }
  EXPECT_FALSE(is_reducible(static_cast<DType>(255), ReduceOp::kSum));
  EXPECT_FALSE(is_reducible(DType::kFloat32, static_cast<ReduceOp>(255)));
}

}  // namespace
}  // namespace ringdist
