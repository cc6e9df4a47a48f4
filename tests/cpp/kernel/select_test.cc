// Compares the selection of the largest elements with a sort.
#include "kernel/select.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace ringdist {
namespace {

using Indices = std::vector<uint16_t>;
constexpr uint64_t kSelectSeed = 12;

Indices sorted(const std::vector<float>& values, size_t k) {
  Indices all(values.size());
  std::iota(all.begin(), all.end(), uint16_t{0});
  std::stable_sort(all.begin(), all.end(),
                   [&](auto a, auto b) { return std::abs(values[a]) > std::abs(values[b]); });
  all.resize(k);
  std::sort(all.begin(), all.end());
  return all;
}

void check(const std::vector<float>& values, size_t k) {
  std::vector<float> sum(values.size());
  const uint32_t largest = sum_block(values.data(), nullptr, values.size(), sum.data());
  ASSERT_EQ(sum, values);
  for (auto* select : {select_largest, select_largest_baseline}) {
    Indices got(kSelectBlock + 1);
    select(values.data(), values.size(), k, largest, got.data());
    got.resize(k);
    ASSERT_EQ(got, sorted(values, k)) << k << " of " << values.size();
  }
}

TEST(Select, IsWhatASortChooses) {
  SCOPED_TRACE("seed " + std::to_string(kSelectSeed));
  std::mt19937 random(kSelectSeed);
  std::normal_distribution<float> normal;
  for (size_t count : {1, 2, 15, 16, 17, 100, 1000, 1023, 1024}) {
    // The second kind has many ties, the third is mostly zero, the fourth has any exponent.
    for (int kind = 0; kind < 4; ++kind) {
      std::vector<float> values(count);
      for (float& x : values) {
        x = normal(random);
        if (kind == 1) x = std::round(2 * x);
        if (kind == 2 && random() % 50 != 0) x = -0.0f;
        if (kind == 3) x = std::ldexp(x, static_cast<int>(random() % 270) - 148);
      }
      for (size_t k : {size_t{1}, size_t{2}, count / 100, count / 4, count - 1, count})
        if (k >= 1 && k <= count) check(values, k);
    }
  }
}

TEST(Select, ExtremesAreOrdinary) {
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kLeast = std::numeric_limits<float>::denorm_min();
  std::vector<float> values(100, 0.0f);
  check(values, 3);
  values[7] = kLeast;
  values[50] = -kLeast;
  check(values, 1);
  check(values, 2);
  values[99] = -kMost;
  check(values, 1);
  check(std::vector<float>(1024, kMost), 10);
}

TEST(Select, SumsTellOfWhatIsNotFinite) {
  std::vector<float> in(100, 1.0f);
  std::vector<float> residual(100, 2.0f);
  std::vector<float> sum(100);
  EXPECT_LT(sum_block(in.data(), residual.data(), 100, sum.data()), 0x7f800000u);
  EXPECT_EQ(sum, std::vector<float>(100, 3.0f));
  in[99] = residual[99] = std::numeric_limits<float>::max();
  EXPECT_GE(sum_block(in.data(), residual.data(), 100, sum.data()), 0x7f800000u);
  in[99] = -std::numeric_limits<float>::quiet_NaN();
  EXPECT_GE(sum_block(in.data(), nullptr, 100, sum.data()), 0x7f800000u);
}

}  // namespace
}  // namespace ringdist
