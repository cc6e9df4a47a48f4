// Compares the loops of PowerSGD with arithmetic in double, and all instruction sets with each
// other.
#include "kernel/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "support/floats.h"

namespace ringdist {
namespace {

constexpr uint64_t kFactorsSeed = 23;

class LowRankKernel : public testing::Test {
 protected:
  testing::ScopedTrace trace{__FILE__, __LINE__, "seed " + std::to_string(kFactorsSeed)};
  std::mt19937 random{kFactorsSeed};

  Floats draw(int64_t count) {
    std::normal_distribution<float> normal;
    Floats out(static_cast<size_t>(count));
    for (float& x : out) x = normal(random);
    return out;
  }

  // The shapes cover whole vectors and tails of rows and columns, ranks divisible by four or not,
  // and more than one stretch.
  static std::vector<MatrixShape> shapes() {
    std::vector<MatrixShape> out{{3, 9001, 4}, {70, 300, 64}};
    for (const int64_t rows : {1, 2, 3, 4, 5, 11})
      for (const int64_t columns : {1, 7, 16, 17, 40, 67})
        for (const int64_t rank : {1, 2, 3, 4, 5, 8}) out.push_back({rows, columns, rank});
    return out;
  }

  static std::vector<const LowRankLoops*> others() {
    std::vector<const LowRankLoops*> out;
    for (const LowRankLoops* each : {low_rank_avx2(), low_rank_avx512()})
      if (each != nullptr) out.push_back(each);
    return out;
  }
};

const float* pointer(const Floats& values) { return values.empty() ? nullptr : values.data(); }
float* pointer(Floats& values) { return values.empty() ? nullptr : values.data(); }

TEST_F(LowRankKernel, MultipliesMatrices) {
  for (const MatrixShape& shape : shapes()) {
    const Floats values = draw(shape.count());
    const Floats residual = draw(shape.count());
    const Floats right = draw(shape.right());
    const Floats left = draw(shape.left());
    Floats got_left(left.size()), got_right(right.size());
    multiply_right(shape, values, residual, right, got_left);
    multiply_left(shape, values, residual, left, got_right);
    const auto sum = [&](int64_t row, int64_t column) {
      const auto i = static_cast<size_t>(row * shape.columns + column);
      return static_cast<double>(values[i]) + residual[i];
    };
    for (int64_t k = 0; k < shape.rank; ++k) {
      for (int64_t i = 0; i < shape.rows; ++i) {
        double expected = 0;
        for (int64_t j = 0; j < shape.columns; ++j)
          expected += sum(i, j) * right[static_cast<size_t>(k * shape.columns + j)];
        ASSERT_NEAR(got_left[static_cast<size_t>(k * shape.rows + i)], expected,
                    1e-5 * static_cast<double>(shape.columns));
      }
      for (int64_t j = 0; j < shape.columns; ++j) {
        double expected = 0;
        for (int64_t i = 0; i < shape.rows; ++i)
          expected += sum(i, j) * left[static_cast<size_t>(k * shape.rows + i)];
        ASSERT_NEAR(got_right[static_cast<size_t>(k * shape.columns + j)], expected,
                    1e-5 * static_cast<double>(shape.rows));
      }
    }
  }
}

TEST_F(LowRankKernel, RebuildsAndKeepsWhatIsLost) {
  for (const MatrixShape& shape : shapes()) {
    const Floats before = draw(shape.count());
    const Floats old_residual = draw(shape.count());
    const Floats left = draw(shape.left());
    const Floats mean = draw(shape.right());
    const Floats own = draw(shape.right());
    Floats values = before;
    Floats residual = old_residual;
    reconstruct(shape, left, mean, own, values, residual);
    for (int64_t i = 0; i < shape.rows; ++i)
      for (int64_t j = 0; j < shape.columns; ++j) {
        double to_mean = 0;
        double to_own = 0;
        for (int64_t k = 0; k < shape.rank; ++k) {
          const double factor = left[static_cast<size_t>(k * shape.rows + i)];
          to_mean += factor * mean[static_cast<size_t>(k * shape.columns + j)];
          to_own += factor * own[static_cast<size_t>(k * shape.columns + j)];
        }
        const auto at = static_cast<size_t>(i * shape.columns + j);
        const double bound = 1e-5 * static_cast<double>(shape.rank);
        ASSERT_NEAR(values[at], to_mean, bound);
        ASSERT_NEAR(residual[at], old_residual[at] + before[at] - to_own, bound);
      }
  }
}

TEST_F(LowRankKernel, HasTheSameBitsOnAllInstructionSets) {
  if (others().empty()) GTEST_SKIP() << "no AVX2";
  for (const MatrixShape& shape : shapes()) {
    for (const bool new_residual : {false, true}) {
      const Floats values = draw(shape.count());
      const Floats residual = new_residual ? draw(shape.count()) : Floats();
      const Floats left = draw(shape.left());
      const Floats right = draw(shape.right());
      const Floats own = draw(shape.right());
      const auto run = [&](const LowRankLoops& loops) {
        std::vector<Floats> out{left, right, values, residual};
        loops.multiply_right(shape, values.data(), pointer(residual), right.data(), out[0].data());
        loops.multiply_left(shape, values.data(), pointer(residual), left.data(), out[1].data());
        loops.reconstruct(shape, left.data(), right.data(), own.data(), out[2].data(),
                          pointer(residual), pointer(out[3]));
        return out;
      };
      const std::vector<Floats> expected = run(*low_rank_baseline());
      for (const LowRankLoops* each : others()) {
        const std::vector<Floats> got = run(*each);
        for (size_t i = 0; i < got.size(); ++i)
          ASSERT_TRUE(same(got[i], expected[i])) << shape.rows << " x " << shape.columns
                                                 << ", rank " << shape.rank << ", result " << i;
      }
    }
  }
}

void expect_orthonormal(const Floats& left, size_t rows, const std::string& what) {
  const size_t rank = left.size() / rows;
  for (size_t a = 0; a < rank; ++a)
    for (size_t b = 0; b <= a; ++b) {
      double product = 0;
      for (size_t i = 0; i < rows; ++i)
        product += static_cast<double>(left[a * rows + i]) * left[b * rows + i];
      EXPECT_NEAR(product, a == b ? 1 : 0, 1e-5) << what << ": columns " << a << ", " << b;
    }
}

TEST_F(LowRankKernel, OrthonormalisesAndReplacesWhatDepends) {
  const MatrixShape shape{50, 1, 4};
  Floats left = draw(shape.left());
  for (size_t i = 0; i < 50; ++i) left[100 + i] = left[i] - 2 * left[50 + i];  // dependent column
  orthonormalise(shape, left);
  expect_orthonormal(left, 50, "a sum of others");
  left.assign(200, 0.0f);
  orthonormalise(shape, left);
  expect_orthonormal(left, 50, "zeros");
}

TEST_F(LowRankKernel, OrthonormalisesAnyMagnitude) {
  const MatrixShape shape{50, 1, 4};
  for (const float scale : {1e-36f, 1e-25f, 1e17f, 1e37f}) {
    Floats left = draw(shape.left());
    for (float& x : left) x *= scale;
    const Floats before = left;
    orthonormalise(shape, left);
    expect_orthonormal(left, 50, "times " + std::to_string(scale));
    EXPECT_NEAR(left[0] / left[1], before[0] / before[1], 1e-4 * std::abs(left[0] / left[1]));
  }
}

TEST_F(LowRankKernel, LeavesZerosWhereThereAreMoreColumnsThanRows) {
  Floats left = draw(3 * 5);
  orthonormalise({3, 1, 5}, left);
  expect_orthonormal(Floats(left.begin(), left.begin() + 9), 3, "the first three");
  for (size_t i = 9; i < left.size(); ++i) EXPECT_EQ(left[i], 0.0f);
}

TEST_F(LowRankKernel, PassesOnWhatIsNotFinite) {
  for (const float bad : {INFINITY, NAN}) {
    Floats left = draw(50 * 2);
    left[7] = bad;
    orthonormalise({50, 1, 2}, left);
    EXPECT_FALSE(all_finite(left));
  }
}

TEST_F(LowRankKernel, KeepsDirectionsAtAMagnitudeNearOne) {
  const Floats from{3e30f, -6e30f, 1.5e30f, 0, 0, 0, 1e-44f, 0, 0};
  Floats right{1, 1, 1, 7, 8, 9, 1, 1, 1};
  keep_directions({1, 3, 3}, from, right);
  EXPECT_EQ(right[0] / right[2], 2.0f);
  EXPECT_EQ(right[1] / right[2], -4.0f);
  EXPECT_GE(std::abs(right[1]), 1.0f);
  EXPECT_LT(std::abs(right[1]), 2.0f);
  EXPECT_EQ(Floats(right.begin() + 3, right.begin() + 6), (Floats{7, 8, 9}));  // unchanged
  EXPECT_GT(right[6], 1e-8f);
}

}  // namespace
}  // namespace ringdist
