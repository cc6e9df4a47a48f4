// Loops over gradients and residuals in host memory.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "codec/gradient_memory.h"
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

TEST(HostMemory, NormOfAGradientWithItsResidual) {
  for (const DType dtype : kDTypes)
    for (const size_t count : {0, 1, 7, 8, 1023, 1024, 1025, 5000}) {
      std::vector<float> values(count, 2);
      std::vector<float> residual(count, -0.5);
      const auto n = static_cast<double>(count);
      EXPECT_DOUBLE_EQ(host_memory().squared_norm(dtype, as(dtype, values), nullptr), 4 * n);
      EXPECT_DOUBLE_EQ(host_memory().squared_norm(dtype, as(dtype, values), residual.data()),
                       2.25 * n);
    }
}

TEST(HostMemory, NormOfHugeAndOfNonFiniteValues) {
  const std::vector<float> huge{3e38F, 3e38F};
  EXPECT_NEAR(
      std::sqrt(host_memory().squared_norm(DType::kFloat32, as(DType::kFloat32, huge), nullptr)) /
          3e38,
      std::sqrt(2.0), 1e-6);
  const std::vector<float> bad{1, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_TRUE(
      std::isnan(host_memory().squared_norm(DType::kBFloat16, as(DType::kBFloat16, bad), nullptr)));
}

TEST(HostMemory, FindsTheOneElementThatIsNotZero) {
  for (const DType dtype : kDTypes)
    for (const size_t count : {1, 1024, 1025, 4001}) {
      std::vector<float> values(count, -0.0F);
      EXPECT_TRUE(host_memory().all_zero(dtype, as(dtype, values)));
      values.back() = 1;
      EXPECT_FALSE(host_memory().all_zero(dtype, as(dtype, values)));
    }
  EXPECT_TRUE(host_memory().all_zero(DType::kFloat32, {}));
}

TEST(HostMemory, PayingMovesTheResidualIntoTheGradient) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (const DType dtype : kDTypes)
    for (const size_t count : {1, 1023, 1024, 3000}) {
      std::vector<std::byte> values = as(dtype, noise(random, count));
      const std::vector<float> before = from(dtype, values);
      std::vector<float> residual = noise(random, count);
      const std::vector<float> old_residual = residual;
      host_memory().apply_residual(dtype, values, residual);
      const std::vector<float> after = from(dtype, values);
      for (size_t i = 0; i < count; ++i) {
        const float sum = before[i] + old_residual[i];
        ASSERT_EQ(after[i] + residual[i], sum) << dtype_name(dtype) << " element " << i;
        ASSERT_TRUE(dtype != DType::kFloat32 || residual[i] == 0);
      }
    }
}

TEST(HostMemory, PayingKeepsWhatMeetsANonFiniteValue) {
  std::vector<std::byte> values = as(DType::kFloat32, {1, std::numeric_limits<float>::infinity()});
  std::vector<float> residual{0.5, 0.25};
  host_memory().apply_residual(DType::kFloat32, values, residual);
  EXPECT_EQ(residual[0], 0);
  EXPECT_EQ(residual[1], 0.25);
  EXPECT_TRUE(std::isinf(from(DType::kFloat32, values)[1]));
}

TEST(HostMemory, PayingKeepsAResidualThatGoesElsewhere) {
  std::vector<std::byte> values =
      as(DType::kFloat32, {1, std::numeric_limits<float>::infinity(), 0});
  const std::vector<float> old_residual{0.5, 0.25, 2};
  std::vector<float> next(3, 7);
  host_memory().apply_residual(DType::kFloat32, values, {old_residual.data(), next.data(), 3});
  EXPECT_EQ(old_residual, (std::vector<float>{0.5, 0.25, 2}));
  EXPECT_EQ(next, (std::vector<float>{0, 0.25, 0}));
  EXPECT_EQ(from(DType::kFloat32, values)[2], 2);
}

TEST(HostMemory, ScalesInSinglePrecision) {
  for (const DType dtype : kDTypes) {
    std::vector<std::byte> values = as(dtype, std::vector<float>(1500, 3));
    host_memory().scale(dtype, values, 0.5);
    EXPECT_EQ(from(dtype, values), std::vector<float>(1500, 1.5F));
  }
}

}  // namespace
}  // namespace ringdist
