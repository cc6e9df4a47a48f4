// Plans for the gradients of a bucket, tested without a GradientCompressor.
#include "compress/bucket_planner.h"

#include <gtest/gtest.h>

#include "fakes.h"

namespace ringdist {
namespace {

constexpr int64_t kSide = 64, kAll = kSide * kSide;

class Planning : public ::testing::Test {
 protected:
  // Sets the codec, and adds parameters of kSide by kSide. The group has two ranks.
  void use(const std::string& codec) {
    ASSERT_FALSE(table.use(codec));
    for (size_t i = 0; i < keys.size(); ++i)
      if (parameters[i] == nullptr)
        parameters[i] = table.add(parameter_of(&keys[i], {kSide, kSide}), names[i], {}).value();
  }
  PlannedBucket plan(DType dtype = DType::kFloat32) {
    Bucket bucket;
    bucket.dtype = dtype;
    bucket.count = 2 * kAll;
    const size_t bytes = bucket.count * dtype_size(dtype);
    bucket.values = std::as_writable_bytes(std::span(values)).first(bytes);
    for (const int& key : keys) bucket.parts.push_back({&key, kAll});
    auto out = planner.plan(bucket);
    EXPECT_TRUE(out.ok()) << out.error().what();
    return std::move(out.value());
  }
  // Completes the step successfully. Each element that a lossy codec encoded gets the given
  // residual.
  void succeed(const PlannedBucket& planned, float old_residual) {
    for (const CodecMapPart& part : planned.plan.codec_map->parts)
      if (part.next != nullptr) std::fill_n(part.next, part.count, old_residual);
    *changes.all_in() = true;
    EXPECT_EQ(changes.try_commit(), StepTransaction::Outcome::kSucceeded);
    record.succeed();
  }
  PlannedBucket begin_and_plan(int64_t step, DType dtype = DType::kFloat32) {
    changes.begin();
    record.begin(step, "int4");
    return plan(dtype);
  }

  const std::array<int, 2> keys{};
  const std::array<std::string, 2> names{"a", "b"};
  std::array<Parameter*, 2> parameters{};
  std::vector<double> values = std::vector<double>(2 * kAll, 0.25);
  CompressionOptions options;
  ParameterTable table{2, std::nullopt, 1024, [](const std::string&) {}};
  StepTransaction changes;
  StepStatistics record{"int4"};
  BucketPlanner planner{options, 2, table, changes, record};
};

TEST_F(Planning, PartsThatShareACodecHaveBlocksAndResidualsOfTheirOwn) {
  use("int4");
  const PlannedBucket planned = begin_and_plan(0);
  EXPECT_TRUE(planned.plan.coded);
  EXPECT_EQ(planned.keep_alive, table.residuals());
  ASSERT_EQ(planned.plan.pieces.size(), 1U);
  EXPECT_EQ(planned.plan.pieces[0].count, 2 * kAll);
  const auto& parts = planned.plan.codec_map->parts;
  ASSERT_EQ(parts.size(), 2U);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(parts[i].offset, static_cast<int64_t>(i) * kAll);
    EXPECT_EQ(parts[i].residual, parameters[i]->residual->values.data());
    EXPECT_NE(parts[i].next, nullptr);
    EXPECT_NE(parts[i].next, parts[i].residual);
  }
  EXPECT_EQ(record.now().bytes_uncompressed,
            2 * kAll * 4.0);  // half is sent to the other rank, and half back
  EXPECT_LT(record.now().bytes_sent, record.now().bytes_uncompressed / 6);
}

TEST_F(Planning, DtypesThatNoCodecTakesTravelAsTheyAre) {
  ASSERT_FALSE(table.use("int4"));  // no parameters exist yet
  const PlannedBucket planned = begin_and_plan(0, DType::kFloat64);
  EXPECT_FALSE(planned.plan.coded);
  EXPECT_TRUE(planned.plan.pieces.empty());
  EXPECT_EQ(record.now().bytes_sent, record.now().bytes_uncompressed);
  EXPECT_EQ(record.now().bytes_sent, 2 * kAll * 8.0);
}

TEST_F(Planning, NothingIsCompressedWhileItWarmsUp) {
  options.warmup_steps = 1;
  use("int4");
  EXPECT_FALSE(begin_and_plan(0).plan.coded);
  EXPECT_TRUE(begin_and_plan(1).plan.coded);
}

TEST_F(Planning, AResidualIsSentByACodecWithoutFeedback) {
  use("int4");
  succeed(begin_and_plan(0), 2);
  auto* const gradients = reinterpret_cast<float*>(values.data());
  std::fill_n(gradients, kAll, 1.0F);
  std::fill_n(gradients + kAll, kAll, 0.0F);  // the second parameter has no gradient
  use("none");
  const PlannedBucket planned = begin_and_plan(1);
  EXPECT_EQ(gradients[0], 3);
  EXPECT_EQ(gradients[kAll], 0);
  succeed(planned, 0);
  EXPECT_FALSE(parameters[0]->residual->nonzero);
  EXPECT_EQ(parameters[0]->residual->values.on_host(), std::vector<float>(kAll));
  EXPECT_EQ(parameters[1]->residual->values.on_host(), std::vector<float>(kAll, 2));
}

TEST_F(Planning, LossesAreMeasuredNowAndThenOfParametersThatHaveGradients) {
  options.measure_every = 2;
  use("int4");
  auto* const gradients = reinterpret_cast<float*>(values.data());
  std::fill_n(gradients, kAll, 4.0F);
  std::fill_n(gradients + kAll, kAll, 0.0F);
  succeed(begin_and_plan(0), 1);
  EXPECT_EQ(record.now().measured_step, 0);
  EXPECT_DOUBLE_EQ(record.now().relative_error, 0.25);
  succeed(begin_and_plan(1), 1);
  EXPECT_EQ(record.now().measured_step, 0);
}

TEST_F(Planning, MatricesGoOnFromTheLastApproximationThatSucceeded) {
  use("powersgd:2");
  const auto rights = [](const PlannedBucket& planned) {
    EXPECT_EQ(planned.low_rank.size(), 2U);
    return std::pair(planned.low_rank[0].right.data(), planned.low_rank[0].next_right.data());
  };
  const PlannedBucket first = begin_and_plan(0);
  EXPECT_TRUE(first.plan.pieces.empty());
  const auto [right, next] = rights(first);
  EXPECT_EQ(first.low_rank[0].right.on_host(), first_right({kSide, kSide, 2}));
  succeed(first, 0);
  const std::pair turned(next, right);
  EXPECT_EQ(rights(begin_and_plan(1)), turned);
  changes.fail();
  EXPECT_EQ(changes.try_commit(), StepTransaction::Outcome::kFailed);
  EXPECT_EQ(rights(begin_and_plan(1)), turned);
}

TEST_F(Planning, ApproximationsLieWhereTheGradientsDo) {
  FakeMemory memory;
  use("none");
  parameters[0]->info.memory = &memory;
  use("powersgd:2");
  const PlannedBucket planned = begin_and_plan(0);
  for (size_t i = 0; i < 2; ++i) {
    GradientMemory* const expected = i == 0 ? &memory : &host_memory();
    const LowRankInput& input = planned.low_rank[i];
    EXPECT_EQ(input.right.memory(), expected);
    EXPECT_EQ(input.next_right.memory(), expected);
    EXPECT_EQ(parameters[i]->residual->values.memory(), expected);
  }
}

}  // namespace
}  // namespace ringdist
