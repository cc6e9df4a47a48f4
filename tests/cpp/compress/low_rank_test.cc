#include "compress/low_rank.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <random>
#include <string>

#include "kernel/cast.h"
#include "support/ranks.h"

namespace ringdist {
namespace {

constexpr uint64_t kLowRankSeed = 20261121;

std::vector<float> normals(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& x : out) x = normal(random);
  return out;
}

// One rank's matrices: their values, their residuals, and the initial right factors of their
// approximations.
struct Matrices {
  Matrices(std::vector<MatrixShape> shapes, DType dtype) : shapes(std::move(shapes)), dtype(dtype) {
    for (const MatrixShape& shape : this->shapes) {
      const auto count = static_cast<size_t>(shape.count());
      values.emplace_back(count * dtype_size(dtype));
      residuals.emplace_back(count);
      rights.emplace_back(static_cast<size_t>(shape.right()));
      draw_noise(kLowRankSeed + values.size(), rights.back());
      next_residuals.emplace_back(count, std::numeric_limits<float>::quiet_NaN());
      next_rights.emplace_back(rights.back().size(), std::numeric_limits<float>::quiet_NaN());
    }
  }

  void set(size_t i, std::span<const float> in) { narrow(dtype, in, values[i]); }
  std::vector<float> get(size_t i) const {
    std::vector<float> out(residuals[i].size());
    widen(dtype, values[i], out);
    return out;
  }

  Error reduce(LowRankReducer& reducer) {
    std::vector<LowRankMatrix> request;
    for (size_t i = 0; i < shapes.size(); ++i)
      request.push_back({shapes[i], dtype, values[i].data(), residuals[i].data(), rights[i].data(),
                         next_residuals[i].data(), next_rights[i].data()});
    const auto before = std::pair(residuals, rights);
    std::promise<Error> done;
    reducer.reduce(std::move(request), [&](Error error) { done.set_value(std::move(error)); });
    const Error error = done.get_future().get();
    EXPECT_TRUE(before == std::pair(residuals, rights));
    if (error) return error;
    residuals.swap(next_residuals);
    rights.swap(next_rights);
    return error;
  }

  std::vector<MatrixShape> shapes;
  DType dtype;
  std::vector<std::vector<std::byte>> values;
  std::vector<std::vector<float>> residuals;
  std::vector<std::vector<float>> rights;
  // Output of a reduction that succeeds; it writes all elements.
  std::vector<std::vector<float>> next_residuals;
  std::vector<std::vector<float>> next_rights;
};

// The second matrix is larger than a chunk, so that two pairs of ops overlap.
const std::vector<MatrixShape> kShapes{{40, 30, 2}, {700, 1500, 4}, {1, 5, 1}, {64, 1100, 3}};

class LowRank : public testing::TestWithParam<std::tuple<int, DType>> {};

TEST_P(LowRank, ResultsAndResidualsSumToTheInputs) {
  const auto [size, dtype] = GetParam();
  RanksOptions options;
  options.size = size;
  Ranks ranks(options);
  constexpr int kSteps = 4;
  std::vector<Matrices> all(static_cast<size_t>(size), Matrices(kShapes, dtype));
  std::vector<std::vector<std::vector<double>>> inputs(all.size());
  std::vector<std::vector<std::vector<double>>> results(all.size());
  const auto group = ranks.another("low_rank");
  ranks.run([&](int rank) {
    Matrices& mine = all[rank];
    LowRankReducer reducer(group[rank]);
    for (size_t i = 0; i < kShapes.size(); ++i) {
      inputs[rank].emplace_back(mine.residuals[i].size());
      results[rank].emplace_back(mine.residuals[i].size());
    }
    for (int step = 0; step < kSteps; ++step) {
      for (size_t i = 0; i < kShapes.size(); ++i) {
        // In one step, rank 1 did not use the first matrix, so its residual stays.
        const bool unused = rank == 1 && step == 2 && i == 0;
        std::vector<float> in =
            normals(mine.residuals[i].size(), kLowRankSeed + rank * 100 + step * 10 + i);
        if (unused) std::fill(in.begin(), in.end(), 0.0f);
        mine.set(i, in);
        in = mine.get(i);
        for (size_t e = 0; e < in.size(); ++e) inputs[rank][i][e] += in[e];
      }
      const std::vector<float> residual = mine.residuals[0];
      const Error error = mine.reduce(reducer);
      ASSERT_FALSE(error) << error.what();
      if (rank == 1 && step == 2 && dtype == DType::kFloat32) {
        ASSERT_EQ(mine.residuals[0], residual);
      }
      for (size_t i = 0; i < kShapes.size(); ++i) {
        const std::vector<float> out = mine.get(i);
        for (size_t e = 0; e < out.size(); ++e) results[rank][i][e] += size * out[e];
      }
    }
  });
  for (size_t i = 0; i < kShapes.size(); ++i) {
    double off = 0;
    double sum = 0;
    for (size_t e = 0; e < inputs[0][i].size(); ++e) {
      double in = 0;
      double out = results[0][i][e];
      for (int rank = 0; rank < size; ++rank) {
        ASSERT_EQ(results[rank][i][e], results[0][i][e]);
        in += inputs[rank][i][e];
        out += all[rank].residuals[i][e];
      }
      off += (in - out) * (in - out);
      sum += in * in;
    }
    EXPECT_LT(std::sqrt(off / sum), 1e-6) << "matrix " << i << ", seed " << kLowRankSeed;
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, LowRank,
                         testing::Combine(testing::Values(2, 3, 4),
                                          testing::Values(DType::kFloat32, DType::kBFloat16)));

// Returns a matrix of low rank, the sum of `terms` outer products of random vectors.
std::vector<float> of_rank(const MatrixShape& shape, int terms, float scale) {
  std::vector<float> out(static_cast<size_t>(shape.count()));
  for (int term = 0; term < terms; ++term) {
    const std::vector<float> u = normals(static_cast<size_t>(shape.rows), kLowRankSeed + 2 * term);
    const std::vector<float> v =
        normals(static_cast<size_t>(shape.columns), kLowRankSeed + 2 * term + 1);
    size_t at = 0;
    for (float a : u)
      for (float b : v) out[at++] += a * b * scale;
  }
  return out;
}

double norm(std::span<const float> values) {
  double out = 0;
  for (float x : values) out += static_cast<double>(x) * x;
  return std::sqrt(out);
}

// Averages the gradients on two ranks, one after the other. The last one must arrive exactly, with
// a residual close to zero.
void expect_to_arrive(const MatrixShape& shape, const std::vector<std::vector<float>>& gradients,
                      float scale = 1) {
  Ranks ranks({});
  const auto group = ranks.another("low_rank");
  ranks.run([&](int rank) {
    Matrices mine({shape}, DType::kFloat32);
    LowRankReducer reducer(group[rank]);
    for (size_t step = 0; step < gradients.size(); ++step) {
      std::vector<float> in = gradients[step];
      for (float& x : in) x *= static_cast<float>(1 + rank);
      mine.set(0, in);
      const Error error = mine.reduce(reducer);
      ASSERT_FALSE(error) << error.what();
    }
    EXPECT_LT(norm(mine.residuals[0]), 1e-4 * norm(gradients.back()));
    const std::vector<float> out = mine.get(0);
    for (size_t i = 0; i < out.size(); ++i)
      ASSERT_NEAR(out[i], gradients.back()[i] * 1.5f, 1e-4f * scale);
  });
}

TEST(LowRankReducer, RecoversAMatrixOfLowRank) {
  const MatrixShape shape{50, 60, 2};
  expect_to_arrive(shape, {of_rank(shape, 1, 1)});
}

TEST(LowRankReducer, RecoversAMatrixOfAnyMagnitude) {
  const MatrixShape shape{50, 60, 2};
  for (const float scale : {1e-30f, 1e-20f, 1e17f, 1e30f}) {
    SCOPED_TRACE(scale);
    expect_to_arrive(shape, {of_rank(shape, 1, scale), of_rank(shape, 1, scale)}, scale);
  }
}

// Some parameters are not used in the first steps. Others have a zero gradient at first because
// one of their factors is zero, like LoRA's.
TEST(LowRankReducer, LearnsAfterStepsOfZeros) {
  const MatrixShape shape{50, 60, 2};
  const std::vector<float> zeros(static_cast<size_t>(shape.count()));
  expect_to_arrive(shape, {zeros, zeros, of_rank(shape, 1, 1)});
}

TEST(LowRankReducer, FollowsARankThatGrows) {
  const MatrixShape shape{50, 60, 4};
  const std::vector<float> full = of_rank(shape, 4, 1);
  expect_to_arrive(shape, {of_rank(shape, 1, 1), full, full, full, full, full, full});
}

TEST(LowRankReducer, PoisonsTheMatrixAndKeepsTheResidual) {
  Ranks ranks({});
  const auto group = ranks.another("low_rank");
  ranks.run([&](int rank) {
    Matrices mine({{8, 8, 1}, {8, 8, 1}}, DType::kFloat32);
    std::vector<float> in = normals(64, 3);
    mine.set(1, in);
    if (rank == 1) in[5] = std::numeric_limits<float>::infinity();
    mine.set(0, in);
    std::fill(mine.residuals[0].begin(), mine.residuals[0].end(), 0.5f);
    LowRankReducer reducer(group[rank]);
    const Error error = mine.reduce(reducer);
    ASSERT_FALSE(error) << error.what();
    for (float x : mine.get(0)) ASSERT_TRUE(std::isnan(x));
    for (float x : mine.get(1)) ASSERT_TRUE(std::isfinite(x));
    for (float x : mine.residuals[0]) ASSERT_EQ(x, 0.5f);
  });
}

// The name appears in `top -H`. The kernel rejects names of more than 15 characters.
TEST(LowRankReducer, NamesItsThread) {
  Ranks ranks({});
  const auto group = ranks.another("low_rank");
  ranks.run([&](int rank) {
    LowRankReducer reducer(group[rank]);
    bool found = false;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      found |= name == "ringdist-psgd";
    }
    EXPECT_TRUE(found);
  });
}

TEST(LowRankReducer, ReportsAGroupThatFailed) {
  Ranks ranks({});
  const auto group = ranks.another("low_rank");
  ranks.run([&](int rank) {
    if (rank == 1) return group[1]->abort("for a test");
    Matrices mine({{8, 8, 1}}, DType::kFloat32);
    LowRankReducer reducer(group[rank]);
    EXPECT_TRUE(mine.reduce(reducer));
  });
}

}  // namespace
}  // namespace ringdist
