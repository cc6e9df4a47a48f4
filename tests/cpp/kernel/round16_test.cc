// fp16 and bf16 of the codecs. Every instruction set gives the bits of the baseline, which must
// round, saturate and keep residuals correctly.
#include "kernel/round16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernel/half.h"
#include "support/floats.h"

namespace ringdist {
namespace {

using Words = std::vector<uint16_t>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Words to_half(const Round16Loops& loops, const Floats& in, Floats& residual) {
  Words out(in.size());
  loops.to_half(in, residual, std::as_writable_bytes(std::span(out)));
  return out;
}

Words to_bfloat(const Round16Loops& loops, const Floats& in, Floats& residual,
                Stochastic rounding) {
  Words out(in.size());
  loops.to_bfloat(in, residual, rounding, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(Round16, EveryInstructionSetGivesTheBaselinesBits) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto values = [&](size_t count) {
    Floats out(count);
    for (float& x : out) {
      // Values of all exponents, and values near 1, so that sums with a residual round.
      const auto any = static_cast<uint32_t>(random());
      x = std::bit_cast<float>(random() % 2 == 0 ? any : (any & 0x80ffffff) | 0x3f000000);
    }
    return out;
  };
  for (const Round16Loops* loops : {round16_avx2(), round16_avx512()}) {
    if (loops == nullptr) continue;
    for (int round = 0; round < 300; ++round) {
      const size_t count = 1 + random() % 700;
      const Floats in = values(count);
      const Floats residual = random() % 2 == 0 ? Floats() : values(count);
      for (Stochastic rounding : {Stochastic{}, Stochastic{true, random()}}) {
        Floats a = residual, b = residual;
        ASSERT_EQ(to_bfloat(*round16_baseline(), in, a, rounding),
                  to_bfloat(*loops, in, b, rounding));
        ASSERT_TRUE(same(a, b));
      }
      Floats a = residual, b = residual;
      ASSERT_EQ(to_half(*round16_baseline(), in, a), to_half(*loops, in, b));
      ASSERT_TRUE(same(a, b));
    }
  }
}

TEST(Round16, FiniteStaysFinite) {
  Floats none;
  const Floats in{65504, 65519, 65520, -1e30f, kInfinity, -kInfinity};
  EXPECT_EQ(to_half(round16(), in, none), (Words{0x7bff, 0x7bff, 0x7bff, 0xfbff, 0x7c00, 0xfc00}));
  const float most = std::numeric_limits<float>::max();
  for (Stochastic rounding : {Stochastic{}, Stochastic{true, 1}})
    EXPECT_EQ(
        to_bfloat(round16(), {most, -most, 0x1.fep127f, kInfinity, -kInfinity}, none, rounding),
        (Words{0x7f7f, 0xff7f, 0x7f7f, 0x7f80, 0xff80}));
}

TEST(Round16, KeepsWhatIsLost) {
  Floats residual{0.5f, 1.0f, 0.25f, 2.0f, 0x1p-26f};
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Floats in{1e6f, 0x1p-12f, kInfinity, nan, 0};
  const Words half = to_half(round16(), in, residual);
  EXPECT_EQ(half, (Words{0x7bff, 0x3c00, 0x7c00, kHalfNaN, 0}));
  EXPECT_EQ(residual, (Floats{1e6f + 0.5f - 65504, 0x1p-12f, 0.25f, 2.0f, 0x1p-26f}));
  residual = {0.5f, 1.0f, 0.25f, 2.0f, 0x1p-140f};
  const Words bfloat = to_bfloat(round16(), in, residual, {});
  EXPECT_EQ(bfloat[1], 0x3f80);
  EXPECT_EQ(residual[1], 0x1p-12f);
  EXPECT_EQ(residual[2], 0.25f);
  EXPECT_EQ(residual[3], 2.0f);
  EXPECT_EQ(residual[4], 0x1p-140f);
}

TEST(Round16, StochasticIsRightOnAverage) {
  constexpr int kCount = 1 << 16;
  const float x = 1 + 0x1p-9f;  // a quarter of the way between two bf16 values
  Floats none;
  double mean = 0;
  for (uint16_t word : to_bfloat(round16(), Floats(kCount, x), none, {true, 9}))
    mean += bfloat_to_float(word) / double{kCount};
  // A step is 2^-7, and a deviation is less than half of it. The limit is 6 / 2^8 of that.
  EXPECT_NEAR(mean, x, 0x1p-8 * 6 / 256);
}

}  // namespace
}  // namespace ringdist
