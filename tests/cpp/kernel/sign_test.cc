// Loops of `onebit`. Every instruction set gives the bits of the baseline, and these are correct.
#include "kernel/sign.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace ringdist {
namespace {

constexpr uint64_t kSignSeed = 11;

struct Taken {
  std::vector<float> sum = std::vector<float>(kSignBlock, -5.0f);
  std::vector<std::byte> bits = std::vector<std::byte>(kSignBlock / 8 + 1, std::byte{0x5a});
  float total = 0;
};

Taken take(const SignLoops& loops, const float* in, const float* residual, size_t count) {
  Taken out;
  out.total = loops.take(in, residual, count, out.sum.data(), out.bits.data());
  return out;
}

class Sign : public testing::TestWithParam<size_t> {
 protected:
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(kSignSeed)};
  std::mt19937 random{kSignSeed};
  const size_t count = GetParam();

  std::vector<float> values() {
    std::normal_distribution<float> normal;
    std::vector<float> out(count + 1);
    for (float& x : out) x = normal(random);
    out[count / 2] = -0.0f;
    return {out.begin() + 1, out.end()};
  }
};

TEST_P(Sign, BaselineSumsAndTakesSigns) {
  const auto in = values();
  const auto residual = values();
  const Taken got = take(sign_baseline(), in.data(), residual.data(), count);
  double total = 0;
  for (size_t i = 0; i < count; ++i) {
    ASSERT_EQ(got.sum[i], in[i] + residual[i]);
    ASSERT_EQ((got.bits[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0},
              std::signbit(got.sum[i]));
    total += std::abs(got.sum[i]);
  }
  for (size_t i = count; i < kSignBlock; ++i) ASSERT_EQ(got.sum[i], 0);
  EXPECT_NEAR(got.total, total, 1e-5 * total);
  EXPECT_EQ(got.bits[(count + 7) / 8], std::byte{0x5a}) << "wrote beyond the bits";
}

TEST_P(Sign, EveryLoopGivesTheSameBits) {
  const SignLoops* fast = sign_avx2();
  if (fast == nullptr) GTEST_SKIP() << "no AVX2";
  for (bool with_residual : {false, true}) {
    const auto in = values();
    auto residual = values();
    const float* const lost = with_residual ? residual.data() : nullptr;
    const Taken a = take(sign_baseline(), in.data(), lost, count);
    const Taken b = take(*fast, in.data(), lost, count);
    EXPECT_EQ(std::memcmp(a.sum.data(), b.sum.data(), kSignBlock * sizeof(float)), 0);
    EXPECT_EQ(a.bits, b.bits);
    EXPECT_EQ(a.total, b.total);
    auto lost_a = residual;
    auto lost_b = residual;
    sign_baseline().lose(a.sum.data(), 0.75f, count, lost_a.data());
    fast->lose(a.sum.data(), 0.75f, count, lost_b.data());
    EXPECT_EQ(lost_a, lost_b);
    for (bool accumulate : {false, true}) {
      auto out_a = in;
      auto out_b = in;
      sign_baseline().decode(a.bits.data(), 0.75f, accumulate, out_a.data(), count);
      fast->decode(a.bits.data(), 0.75f, accumulate, out_b.data(), count);
      EXPECT_EQ(out_a, out_b);
      EXPECT_EQ(out_a[0], (accumulate ? in[0] : 0.0f) + std::copysign(0.75f, a.sum[0]));
    }
  }
}

TEST_P(Sign, TotalIsNotFiniteIfAnElementIsNot) {
  for (const SignLoops* loops : {&sign_baseline(), &sign_loops()}) {
    for (float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto in = values();
      in[count - 1] = bad;
      EXPECT_FALSE(std::isfinite(take(*loops, in.data(), nullptr, count).total));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Counts, Sign, testing::Values(1, 7, 8, 9, 31, 32, 33, 255, 256));

}  // namespace
}  // namespace ringdist
