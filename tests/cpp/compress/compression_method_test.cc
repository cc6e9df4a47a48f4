// Compression methods: how each kind of parameter travels.
#include "compress/compression_method.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ringdist {
namespace {

constexpr int kSize = 4;

CompressionMethodPtr made(const std::string& spec, std::optional<bool> feedback = std::nullopt,
                          int size = kSize) {
  auto method = make_compression_method("codec", spec, size, feedback);
  EXPECT_TRUE(method.ok()) << spec << ": " << method.error().what();
  return method.ok() ? method.value() : nullptr;
}

std::string refusal(const std::string& spec, std::optional<bool> feedback = std::nullopt) {
  const auto method = make_compression_method("codec", spec, kSize, feedback);
  EXPECT_FALSE(method.ok()) << spec;
  return method.ok() ? "" : method.error().message();
}

// Calls body(method) for each example of each kind, in a group of `size`.
template <typename Body>
void for_each_example(int size, const Body& body) {
  for (const CompressionMethodRow& row : compression_methods())
    for (const std::string_view example : row.examples) {
      SCOPED_TRACE(std::string(row.name) + ": " + std::string(example));
      if (const CompressionMethodPtr method = made(std::string(example), std::nullopt, size))
        body(*method);
    }
}

TEST(Methods, HaveNamesOfTheirOwnAndTakeTheirExamples) {
  std::set<std::string_view> names;
  for (const CompressionMethodRow& row : compression_methods()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    ASSERT_FALSE(row.examples.empty()) << row.name;
    for (const std::string_view example : row.examples) {
      const auto first = std::ranges::find_if(
          compression_methods(),
          [&](const CompressionMethodRow& one) { return one.accepts(example); });
      EXPECT_EQ(first->name, row.name) << example;
    }
  }
  EXPECT_TRUE(compression_methods().back().accepts("nobody"));
}

TEST(Methods, NameThemselvesAsTheyAreMade) {
  for_each_example(kSize, [](const CompressionMethod& method) {
    const CompressionMethodPtr again = made(method.name());
    ASSERT_TRUE(again);
    EXPECT_EQ(again->name(), method.name());
    EXPECT_EQ(again->bits(), method.bits());
    EXPECT_EQ(again->feedback(), method.feedback());
  });
}

TEST(Methods, PlanWhatTheyAreGiven) {
  for_each_example(kSize, [](const CompressionMethod& method) {
    const ParameterSlice slice{100, 64 * 256, 64};
    BucketPlan plan;
    method.add(slice, plan);
    int64_t planned = plan.codec_map->count();
    for (const BucketPlan::LowRank& one : plan.low_rank) planned += one.slice.count;
    EXPECT_EQ(planned, slice.count);
    EXPECT_LE(method.bytes(slice, DType::kFloat32), 2.0 * 4 * 64 * 256 * 1.01);
  });
}

TEST(Methods, HaveNoResidualAlone) {
  for_each_example(1, [](const CompressionMethod& alone) { EXPECT_FALSE(alone.feedback()); });
}

TEST(Methods, RefuseWithTheArgumentsName) {
  EXPECT_NE(refusal("nobody").find("codec='nobody': "), std::string::npos);
  for (const std::string bad : {"powersgd:", "powersgd:0", "powersgd:65", "powersgd:4>int8"})
    EXPECT_NE(refusal(bad).find("expected powersgd:RANK alone, RANK in 1 .. 64"), std::string::npos)
        << bad;
  EXPECT_NE(refusal("randomk:10", true).find("error_feedback=True"), std::string::npos);
}

TEST(LowRankMethod, LeavesVectorsAndNarrowMatricesAlone) {
  const CompressionMethodPtr method = made("powersgd:4");
  for (const ParameterSlice& slice :
       {ParameterSlice{0, 1000, 1}, ParameterSlice{0, 1000, 1000}, ParameterSlice{0, 64, 8}}) {
    BucketPlan plan;
    method->add(slice, plan);
    EXPECT_TRUE(plan.low_rank.empty());
    EXPECT_FALSE(plan.coded);
    EXPECT_FALSE(method->feedback_of(slice));
  }
  BucketPlan plan;
  method->add({0, 64 * 256, 64}, plan);
  ASSERT_EQ(plan.low_rank.size(), 1u);
  EXPECT_EQ(plan.low_rank[0].shape.rank, 4);
}

// Adjacent pieces that need no codec are joined.
TEST(BucketPlan, JoinsNeighbours) {
  BucketPlan plan;
  const CompressionMethodPtr none = made("none");
  const CompressionMethodPtr int8 = made("int8");
  none->add({0, 10}, plan);
  none->add({10, 10}, plan);
  int8->add({20, 2000}, plan);
  none->add({5000, 10}, plan);
  ASSERT_EQ(plan.pieces.size(), 2u);
  EXPECT_EQ(plan.pieces[0].count, 2020);
  EXPECT_EQ(plan.pieces[1].offset, 5000);
  ASSERT_EQ(plan.codec_map->parts.size(), 3u);
  EXPECT_EQ(plan.codec_map->parts[0].count, 20);
  EXPECT_TRUE(plan.coded);
}

}  // namespace
}  // namespace ringdist
