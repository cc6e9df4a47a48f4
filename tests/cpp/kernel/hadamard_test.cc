// Compares the rotation with the matrix itself, and every instruction set with the baseline.
#include "kernel/hadamard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace ringdist {
namespace {

constexpr uint64_t kHadamardSeed = 13;

class Rotation : public testing::TestWithParam<size_t> {
 protected:
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(kHadamardSeed)};
  std::mt19937 random{kHadamardSeed};
  const size_t count = GetParam();
  const float root = 1 / std::sqrt(static_cast<float>(count));
  std::vector<float> in = std::vector<float>(count);
  std::vector<std::byte> signs = std::vector<std::byte>((count + 7) / 8);

  void SetUp() override {
    std::normal_distribution<float> normal;
    for (float& x : in) x = normal(random);
    for (std::byte& b : signs) b = static_cast<std::byte>(random());
  }

  std::vector<float> forward(const RotationLoops& loops) const {
    std::vector<float> out(count);
    loops.forward(in.data(), signs.data(), root, count, out.data());
    return out;
  }
};

TEST_P(Rotation, IsTheMatrixOfSigns) {
  const auto got = forward(rotation_baseline());
  for (size_t row = 0; row < count; ++row) {
    double expected = 0;
    for (size_t i = 0; i < count; ++i) {
      const int flips = static_cast<int>(signs[i / 8] >> (i % 8)) & 1;
      const int turns = flips + std::popcount(row & i);
      expected += (turns % 2 == 0 ? 1.0 : -1.0) * in[i] * root;
    }
    ASSERT_NEAR(got[row], expected, 1e-5) << row;
  }
}

TEST_P(Rotation, BackUndoesIt) {
  auto x = forward(rotation_loops());
  rotation_loops().back(x.data(), signs.data(), root, count);
  for (size_t i = 0; i < count; ++i) ASSERT_NEAR(x[i], in[i], 1e-5);
}

TEST_P(Rotation, EveryLoopGivesTheSameBits) {
  const auto expected = forward(rotation_baseline());
  auto expected_back = expected;
  rotation_baseline().back(expected_back.data(), signs.data(), root, count);
  for (const RotationLoops* loops : {rotation_avx2(), rotation_avx512()}) {
    if (loops == nullptr) continue;
    auto out = forward(*loops);
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * sizeof(float)), 0);
    loops->back(out.data(), signs.data(), root, count);
    EXPECT_EQ(std::memcmp(out.data(), expected_back.data(), count * sizeof(float)), 0);
    // The loops also work in place.
    auto same = in;
    loops->forward(same.data(), signs.data(), root, count, same.data());
    EXPECT_EQ(same, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, Rotation,
                         testing::Values(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024));

}  // namespace
}  // namespace ringdist
