// Compares the loops of `onebit+h` with those of the rotation followed by those of the signs.
#include "kernel/rotated_sign.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernel/hadamard.h"
#include "kernel/select.h"
#include "support/floats.h"

namespace ringdist {
namespace {

constexpr uint64_t kRotatedSeed = 17;
constexpr float kScale = 1 / 16.0f;
constexpr size_t kBytes = kSignBlock / 8;

using Bits = std::vector<std::byte>;

class RotatedSign : public testing::Test {
 protected:
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(kRotatedSeed)};
  std::mt19937 random{kRotatedSeed};
  std::vector<const RotatedSignLoops*> loops;

  void SetUp() override {
    for (const auto* each : {rotated_sign_avx2(), rotated_sign_avx512()})
      if (each != nullptr) loops.push_back(each);
    if (loops.empty()) GTEST_SKIP() << "no AVX2";
  }

  Floats values() {
    std::normal_distribution<float> normal;
    Floats out(kSignBlock);
    for (float& x : out) x = normal(random);
    out[3] = 0;
    out[5] = -0.0f;
    return out;
  }

  Bits bits() {
    Bits out(kBytes);
    for (std::byte& b : out) b = static_cast<std::byte>(random());
    return out;
  }

  static Floats back(const Bits& bits, const Bits& flips, float scale) {
    Floats out(kSignBlock);
    sign_baseline().decode(bits.data(), scale, false, out.data(), kSignBlock);
    rotation_baseline().back(out.data(), flips.data(), kScale, kSignBlock);
    return out;
  }
};

TEST_F(RotatedSign, TakesWhatTheStepsTake) {
  for (int turn = 0; turn < 100; ++turn) {
    const Floats in = values();
    const Floats residual = turn % 2 == 0 ? Floats() : values();
    const float* const lost = residual.empty() ? nullptr : residual.data();
    const Bits flips = bits();
    Floats sum(kSignBlock), rotated(kSignBlock), unused(kSignBlock), got_sum(kSignBlock);
    Bits expected(kBytes), got(kBytes);
    const uint32_t largest = sum_block(in.data(), lost, kSignBlock, sum.data());
    rotation_baseline().forward(sum.data(), flips.data(), kScale, kSignBlock, rotated.data());
    const float total =
        sign_baseline().take(rotated.data(), nullptr, kSignBlock, unused.data(), expected.data());
    for (const RotatedSignLoops* each : loops) {
      float got_total = 0;
      EXPECT_EQ(each->take(in.data(), lost, flips.data(), got_sum.data(), got.data(), &got_total),
                largest);
      EXPECT_EQ(got_total, total);
      EXPECT_EQ(got, expected);
      EXPECT_TRUE(lost == nullptr || same(got_sum, sum));
    }
  }
}

TEST_F(RotatedSign, GoesBackAsTheTwoStepsDo) {
  for (const float scale : {1.0f, 0.7109375f, 0x1.fcp-100f, 0x1.84p99f}) {
    for (int turn = 0; turn < 100; ++turn) {
      const Bits signs = turn == 0   ? Bits(kBytes)
                         : turn == 1 ? Bits(kBytes, std::byte{0xff})
                                     : bits();
      const Bits flips = bits();
      const Floats expected = back(signs, flips, scale);
      const Floats sum = values();
      Floats added = sum, lost = sum;
      for (size_t i = 0; i < kSignBlock; ++i) {
        added[i] += expected[i];
        lost[i] -= expected[i];
      }
      for (const RotatedSignLoops* each : loops) {
        Floats got(kSignBlock);
        each->store(signs.data(), flips.data(), scale, nullptr, got.data());
        EXPECT_TRUE(same(got, expected));
        got = sum;
        each->add(signs.data(), flips.data(), scale, got.data(), got.data());
        EXPECT_TRUE(same(got, added));
        each->subtract(signs.data(), flips.data(), scale, sum.data(), got.data());
        EXPECT_TRUE(same(got, lost));
      }
    }
  }
}

}  // namespace
}  // namespace ringdist
