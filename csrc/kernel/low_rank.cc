#include "kernel/low_rank.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ringdist {
namespace {

// Partial sums of a dot product: wide enough for any vector unit, and part of the result's bits.
constexpr int64_t kLanes = 16;
// Columns treated together: a stretch of a row and of the factor stays in the first-level cache.
constexpr int64_t kStretch = 1024;

[[gnu::always_inline]] inline float dot(const float* a, const float* b, int64_t n) {
  std::array<float, kLanes> sums{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  for (; i < n; ++i) sums[i % kLanes] += a[i] * b[i];
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

// One row's stretch with its residual.
[[gnu::always_inline]] inline void load(const float* values, const float* residual, float* out,
                                        int64_t n) {
  if (residual == nullptr)
    std::copy_n(values, n, out);
  else
    for (int64_t i = 0; i < n; ++i) out[i] = values[i] + residual[i];
}

// Inlined into one function for each instruction set.
struct Loops {
  [[gnu::always_inline]] static void multiply_right(const MatrixShape& shape, const float* values,
                                                    const float* residual, const float* right,
                                                    float* left) {
    std::array<float, kStretch> row;
    std::fill_n(left, shape.left(), 0.0f);
    for (int64_t begin = 0; begin < shape.columns; begin += kStretch) {
      const int64_t n = std::min(kStretch, shape.columns - begin);
      for (int64_t i = 0; i < shape.rows; ++i) {
        const int64_t at = i * shape.columns + begin;
        load(values + at, residual ? residual + at : nullptr, row.data(), n);
        for (int64_t k = 0; k < shape.rank; ++k)
          left[k * shape.rows + i] += dot(row.data(), right + k * shape.columns + begin, n);
      }
    }
  }

  [[gnu::always_inline]] static void multiply_left(const MatrixShape& shape, const float* values,
                                                   const float* residual, const float* left,
                                                   float* right) {
    std::array<float, kStretch> row;
    std::fill_n(right, shape.right(), 0.0f);
    for (int64_t begin = 0; begin < shape.columns; begin += kStretch) {
      const int64_t n = std::min(kStretch, shape.columns - begin);
      for (int64_t i = 0; i < shape.rows; ++i) {
        const int64_t at = i * shape.columns + begin;
        load(values + at, residual ? residual + at : nullptr, row.data(), n);
        for (int64_t k = 0; k < shape.rank; ++k) {
          const float factor = left[k * shape.rows + i];
          float* __restrict out = right + k * shape.columns + begin;
          for (int64_t j = 0; j < n; ++j) out[j] += factor * row[j];
        }
      }
    }
  }

  [[gnu::always_inline]] static void reconstruct(const MatrixShape& shape, const float* left,
                                                 const float* mean_right, const float* own_right,
                                                 float* values, float* residual) {
    std::array<float, kStretch> mean;
    std::array<float, kStretch> own;
    for (int64_t begin = 0; begin < shape.columns; begin += kStretch) {
      const int64_t n = std::min(kStretch, shape.columns - begin);
      for (int64_t i = 0; i < shape.rows; ++i) {
        std::fill_n(mean.data(), n, 0.0f);
        std::fill_n(own.data(), n, 0.0f);
        for (int64_t k = 0; k < shape.rank; ++k) {
          const float factor = left[k * shape.rows + i];
          const float* to_mean = mean_right + k * shape.columns + begin;
          const float* to_own = own_right + k * shape.columns + begin;
          for (int64_t j = 0; j < n; ++j) mean[j] += factor * to_mean[j];
          for (int64_t j = 0; residual != nullptr && j < n; ++j) own[j] += factor * to_own[j];
        }
        float* __restrict row = values + i * shape.columns + begin;
        if (residual != nullptr) {
          float* __restrict lost = residual + i * shape.columns + begin;
          for (int64_t j = 0; j < n; ++j) lost[j] += row[j] - own[j];
        }
        std::copy_n(mean.data(), n, row);
      }
    }
  }
};

const float* data_or_null(std::span<const float> values) {
  return values.empty() ? nullptr : values.data();
}
float* data_or_null(std::span<float> values) { return values.empty() ? nullptr : values.data(); }

#if defined(__x86_64__)

[[gnu::target("avx2")]] void right_avx2(const MatrixShape& shape, const float* values,
                                        const float* residual, const float* right, float* left) {
  Loops::multiply_right(shape, values, residual, right, left);
}
[[gnu::target("avx2")]] void left_avx2(const MatrixShape& shape, const float* values,
                                       const float* residual, const float* left, float* right) {
  Loops::multiply_left(shape, values, residual, left, right);
}
[[gnu::target("avx2")]] void reconstruct_avx2(const MatrixShape& shape, const float* left,
                                              const float* mean_right, const float* own_right,
                                              float* values, float* residual) {
  Loops::reconstruct(shape, left, mean_right, own_right, values, residual);
}
bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2");
  return has;
}

#endif

}  // namespace

void multiply_right(const MatrixShape& shape, std::span<const float> values,
                    std::span<const float> residual, std::span<const float> right,
                    std::span<float> left) {
#if defined(__x86_64__)
  if (has_avx2())
    return right_avx2(shape, values.data(), data_or_null(residual), right.data(), left.data());
#endif
  Loops::multiply_right(shape, values.data(), data_or_null(residual), right.data(), left.data());
}

void multiply_left(const MatrixShape& shape, std::span<const float> values,
                   std::span<const float> residual, std::span<const float> left,
                   std::span<float> right) {
#if defined(__x86_64__)
  if (has_avx2())
    return left_avx2(shape, values.data(), data_or_null(residual), left.data(), right.data());
#endif
  Loops::multiply_left(shape, values.data(), data_or_null(residual), left.data(), right.data());
}

void reconstruct(const MatrixShape& shape, std::span<const float> left,
                 std::span<const float> mean_right, std::span<const float> own_right,
                 std::span<float> values, std::span<float> residual) {
#if defined(__x86_64__)
  if (has_avx2())
    return reconstruct_avx2(shape, left.data(), mean_right.data(), own_right.data(), values.data(),
                            data_or_null(residual));
#endif
  Loops::reconstruct(shape, left.data(), mean_right.data(), own_right.data(), values.data(),
                     data_or_null(residual));
}

void orthonormalise(const MatrixShape& shape, std::span<float> left) {
  // Of a column, what is left after subtracting the others must not be rounding noise alone.
  constexpr float kIndependent = 1e-5f;
  const int64_t n = shape.rows;
  for (int64_t k = 0; k < shape.rank; ++k) {
    float* column = left.data() + k * n;
    const float before = std::sqrt(dot(column, column, n));
    for (int64_t earlier = 0; earlier < k; ++earlier) {
      const float* other = left.data() + earlier * n;
      const float along = dot(column, other, n);
      for (int64_t i = 0; i < n; ++i) column[i] -= along * other[i];
    }
    const float after = std::sqrt(dot(column, column, n));
    const bool depends = !(after > kIndependent * before) && !std::isnan(after);
    const float factor = depends ? 0.0f : 1 / after;
    for (int64_t i = 0; i < n; ++i) column[i] *= factor;
  }
}

bool all_finite(std::span<const float> values) {
  uint32_t most = 0;
  for (float x : values) most = std::max(most, std::bit_cast<uint32_t>(x) & 0x7fffffff);
  return most < 0x7f800000;
}

}  // namespace ringdist
