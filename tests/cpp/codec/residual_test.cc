// The store of residuals, and the loops over gradients beside it.
#include "codec/residual.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "kernel/cast.h"

namespace ringdist {
namespace {

constexpr DType kDTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

std::vector<std::byte> as(DType dtype, const std::vector<float>& values) {
  std::vector<std::byte> out(values.size() * dtype_size(dtype));
  narrow(dtype, values, out);
  return out;
}

std::vector<float> from(DType dtype, const std::vector<std::byte>& bytes) {
  std::vector<float> out(bytes.size() / dtype_size(dtype));
  widen(dtype, bytes, out);
  return out;
}

std::vector<float> noise(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

TEST(ResidualStore, KeepsAResidualWhereItIs) {
  ResidualStore store;
  auto first = store.get("a.weight", 3);
  ASSERT_TRUE(first.ok());
  EXPECT_EQ(first.value()->values, std::vector<float>(3));
  EXPECT_FALSE(first.value()->owed);
  first.value()->values[1] = 2;
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(store.get("p" + std::to_string(i), 5).ok());
  EXPECT_EQ(store.get("a.weight", 3).value(), first.value());
  EXPECT_EQ(first.value()->values[1], 2);
}

TEST(ResidualStore, RefusesAnotherCount) {
  ResidualStore store;
  ASSERT_TRUE(store.get("a.weight", 3).ok());
  const Error error = store.get("a.weight", 4).error();
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kInvalidArgument);
  EXPECT_NE(error.message().find("'a.weight' has 3 elements, the parameter has 4"),
            std::string::npos)
      << error.message();
}

TEST(ResidualStore, ScalesClearsAndMeasuresWhatIsOwed) {
  ResidualStore store;
  Residual& a = *store.get("a", 2).value();
  Residual& b = *store.get("b", 1).value();
  a.values = {3, 0};
  b.values = {4};
  a.owed = b.owed = true;
  EXPECT_DOUBLE_EQ(store.squared_norm(), 25);
  store.scale(0.5);
  EXPECT_EQ(a.values[0], 1.5F);
  EXPECT_DOUBLE_EQ(store.squared_norm(), 6.25);
  store.clear();
  EXPECT_EQ(b.values[0], 0);
  EXPECT_FALSE(b.owed);
  EXPECT_EQ(store.squared_norm(), 0);
}

TEST(Residual, ChangesWhenTheStepHasSucceeded) {
  ResidualStore store;
  Residual& a = *store.get("a", 3).value();
  a.values = {1, 2, 3};
  for (const bool succeeds : {false, true}) {
    const ResidualSpan both = a.begin();
    ASSERT_EQ(both.count, 3u);
    EXPECT_EQ(both.from, a.values.data());
    EXPECT_NE(both.from, both.to);
    std::fill_n(both.to, 3, 7.0F);
    EXPECT_EQ(a.values, (std::vector<float>{1, 2, 3}));
    EXPECT_FALSE(a.owed);
    if (succeeds) a.commit(true);
  }
  EXPECT_EQ(a.values, (std::vector<float>{7, 7, 7}));
  EXPECT_TRUE(a.owed);
}

TEST(Residual, NormOfAGradientWithItsResidual) {
  for (const DType dtype : kDTypes)
    for (const size_t count : {0, 1, 7, 8, 1023, 1024, 1025, 5000}) {
      std::vector<float> values(count, 2);
      std::vector<float> residual(count, -0.5);
      const auto n = static_cast<double>(count);
      EXPECT_DOUBLE_EQ(squared_norm(dtype, as(dtype, values), {}), 4 * n);
      EXPECT_DOUBLE_EQ(squared_norm(dtype, as(dtype, values), residual), 2.25 * n);
    }
}

TEST(Residual, NormOfHugeAndOfNonFiniteValues) {
  const std::vector<float> huge{3e38F, 3e38F};
  EXPECT_NEAR(std::sqrt(squared_norm(DType::kFloat32, as(DType::kFloat32, huge), {})) / 3e38,
              std::sqrt(2.0), 1e-6);
  const std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(std::isnan(squared_norm(DType::kBFloat16, as(DType::kBFloat16, bad), {})));
}

TEST(Residual, FindsTheOneElementThatIsNotZero) {
  for (const DType dtype : kDTypes)
    for (const size_t count : {1, 1024, 1025, 4001}) {
      std::vector<float> values(count, -0.0F);
      EXPECT_TRUE(all_zero(dtype, as(dtype, values)));
      values.back() = 1;
      EXPECT_FALSE(all_zero(dtype, as(dtype, values)));
    }
  EXPECT_TRUE(all_zero(DType::kFloat32, {}));
}

TEST(Residual, PayingMovesTheResidualIntoTheGradient) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const DType dtype : kDTypes)
    for (const size_t count : {1, 1023, 1024, 3000}) {
      std::vector<std::byte> values = as(dtype, noise(random, count));
      const std::vector<float> before = from(dtype, values);
      std::vector<float> residual = noise(random, count);
      const std::vector<float> owed = residual;
      pay(dtype, values, residual);
      const std::vector<float> after = from(dtype, values);
      for (size_t i = 0; i < count; ++i) {
        const float sum = before[i] + owed[i];
        ASSERT_EQ(after[i] + residual[i], sum) << dtype_name(dtype) << " element " << i;
        ASSERT_TRUE(dtype != DType::kFloat32 || residual[i] == 0);
      }
    }
}

TEST(Residual, PayingKeepsWhatMeetsANonFiniteValue) {
  std::vector<std::byte> values = as(DType::kFloat32, {1, std::numeric_limits<float>::infinity()});
  std::vector<float> residual{0.5, 0.25};
  pay(DType::kFloat32, values, residual);
  EXPECT_EQ(residual[0], 0);
  EXPECT_EQ(residual[1], 0.25);
  EXPECT_TRUE(std::isinf(from(DType::kFloat32, values)[1]));
}

TEST(Residual, PayingLeavesWhatWasOwedWhereTheRestGoesElsewhere) {
  std::vector<std::byte> values =
      as(DType::kFloat32, {1, std::numeric_limits<float>::infinity(), 0});
  const std::vector<float> owed{0.5, 0.25, 2};
  std::vector<float> next(3, 7);
  pay(DType::kFloat32, values, {owed.data(), next.data(), 3});
  EXPECT_EQ(owed, (std::vector<float>{0.5, 0.25, 2}));
  EXPECT_EQ(next, (std::vector<float>{0, 0.25, 0}));
  EXPECT_EQ(from(DType::kFloat32, values)[2], 2);
}

TEST(Residual, WhichCodecsMayHaveFeedback) {
  const CodecPair none = parse_codec_pair("none", 2).value();
  EXPECT_TRUE(may_use_feedback(none));
  EXPECT_FALSE(feedback_by_default(none));
}

}  // namespace
}  // namespace ringdist
