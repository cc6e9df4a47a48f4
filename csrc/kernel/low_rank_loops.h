// Loops of kernel/low_rank.h over vectors of `W` floats, to be inlined into one function per
// instruction set. Each product reads a matrix from memory once, at its speed. Several rows at a
// time share the loaded factors and give the processor several streams to prefetch.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "kernel/matrix_shape.h"
#include "kernel/residual_span.h"

namespace ringdist::low_rank {

// Loops for one vector width. If HasResidual is false, pointers to residuals are not read.
template <int W, bool HasResidual>
struct Loops {
  // Partial sums of a dot product: one per lane of the widest vector. The number determines the
  // result's bits.
  static constexpr int kLanes = 16;
  // Columns processed together, so that their part of the factors stays in the second-level cache.
  static constexpr int64_t kStretch = 4096;

  typedef float Vector __attribute__((vector_size(W * sizeof(float))));
  // Vector in memory, at any address.
  typedef float Stored __attribute__((vector_size(W * sizeof(float)), aligned(4), may_alias));

  [[gnu::always_inline]] static const Stored& at(const float* p) {
    return *reinterpret_cast<const Stored*>(p);
  }
  [[gnu::always_inline]] static Stored& at(float* p) { return *reinterpret_cast<Stored*>(p); }

  [[gnu::always_inline]] static float with_residual(const float* values, const float* residual,
                                                    int64_t i) {
    return HasResidual ? values[i] + residual[i] : values[i];
  }

  // Loads the vectors that begin at element `i` of R rows, and adds the residuals.
  template <int R>
  [[gnu::always_inline]] static void load(const float* values, const float* residual,
                                          int64_t columns, int64_t i, Vector (&out)[R]) {
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
      out[r] = at(values + r * columns + i);
      if constexpr (HasResidual) out[r] += at(residual + r * columns + i);
    }
  }

  // Computes the dot products of R rows with K columns of `right`. Element i goes to lane i %
  // kLanes for every W, and the lanes are added pairwise. So all instruction sets give the same
  // bits.
  template <int R, int K>
  [[gnu::always_inline]] static void dots(const MatrixShape& shape, const float* values,
                                          const float* residual, const float* right, float* left) {
    constexpr int kParts = kLanes / W;
    const int64_t columns = shape.columns;
    const int64_t whole = columns - columns % kLanes;
    Vector sums[R][K][kParts] = {};
    for (int64_t i = 0; i < whole; i += kLanes) {
#pragma GCC unroll 4
      for (int part = 0; part < kParts; ++part) {
        Vector x[R];
        load(values, residual, columns, i + part * W, x);
#pragma GCC unroll 4
        for (int k = 0; k < K; ++k) {
          const Vector y = at(right + k * columns + i + part * W);
#pragma GCC unroll 4
          for (int r = 0; r < R; ++r) sums[r][k][part] += x[r] * y;
        }
      }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int k = 0; k < K; ++k) {
        std::array<float, kLanes> lanes;
#pragma GCC unroll 4
        for (int part = 0; part < kParts; ++part) at(lanes.data() + part * W) = sums[r][k][part];
        for (int64_t i = whole; i < columns; ++i)
          lanes[i % kLanes] +=
              with_residual(values, residual, r * columns + i) * right[k * columns + i];
        for (int width = kLanes / 2; width > 0; width /= 2)
          for (int lane = 0; lane < width; ++lane) lanes[lane] += lanes[lane + width];
        left[k * shape.rows + r] = lanes[0];
      }
    }
  }

  // Computes the dot products of R rows with all columns of `right`, four at a time.
  template <int R>
  [[gnu::always_inline]] static void all_dots(const MatrixShape& shape, const float* values,
                                              const float* residual, const float* right,
                                              float* left) {
    int64_t k = 0;
    const auto next = [&]<int K>(std::integral_constant<int, K>) __attribute__((always_inline)) {
      dots<R, K>(shape, values, residual, right + k * shape.columns, left + k * shape.rows);
      k += K;
    };
    while (k + 4 <= shape.rank) next(std::integral_constant<int, 4>{});
    if (shape.rank & 2) next(std::integral_constant<int, 2>{});
    if (shape.rank & 1) next(std::integral_constant<int, 1>{});
  }

  // Computes left = (values + residual) * right, kRows rows at a time.
  [[gnu::always_inline]] static void multiply_right(const MatrixShape& shape, const float* values,
                                                    const float* residual, const float* right,
                                                    float* left) {
    // With four columns, 16 vectors of sums at W == 16 and at W == 8. AVX-512 has 32 registers, and
    // AVX2 has 16.
    constexpr int kRows = W == 16 ? 4 : 2;
    int64_t i = 0;
    for (; i + kRows <= shape.rows; i += kRows)
      all_dots<kRows>(shape, values + i * shape.columns, residual + i * shape.columns, right,
                      left + i);
    for (; i < shape.rows; ++i)
      all_dots<1>(shape, values + i * shape.columns, residual + i * shape.columns, right, left + i);
  }

  // Adds the contributions of R rows to `n` columns of `right`, one row after the other. So the
  // order of additions to an element does not depend on R or W.
  template <int R>
  [[gnu::always_inline]] static void add_rows(const MatrixShape& shape, int64_t n,
                                              const float* values, const float* residual,
                                              const float* left, float* right) {
    int64_t j = 0;
    for (; j + W <= n; j += W) {
      Vector x[R];
      load(values, residual, shape.columns, j, x);
      for (int64_t k = 0; k < shape.rank; ++k) {
        Vector sum = at(right + k * shape.columns + j);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) sum += left[k * shape.rows + r] * x[r];
        at(right + k * shape.columns + j) = sum;
      }
    }
    for (; j < n; ++j)
      for (int64_t k = 0; k < shape.rank; ++k)
        for (int r = 0; r < R; ++r)
          right[k * shape.columns + j] +=
              left[k * shape.rows + r] * with_residual(values, residual, r * shape.columns + j);
  }

  // Rebuilds `n` columns of R rows: values become the mean, residuals the loss of this rank's own
  // product.
  template <int R>
  [[gnu::always_inline]] static void rebuild_rows(const MatrixShape& shape, int64_t n,
                                                  const float* left, const float* mean_right,
                                                  const float* own_right, float* values,
                                                  const float* old_residual, float* new_residual) {
    int64_t j = 0;
    for (; j + W <= n; j += W) {
      Vector mean[R] = {};
      Vector own[R] = {};
      for (int64_t k = 0; k < shape.rank; ++k) {
        const Vector to_mean = at(mean_right + k * shape.columns + j);
        const Vector to_own = at(own_right + k * shape.columns + j);
#pragma GCC unroll 4
        for (int r = 0; r < R; ++r) {
          mean[r] += left[k * shape.rows + r] * to_mean;
          if constexpr (HasResidual) own[r] += left[k * shape.rows + r] * to_own;
        }
      }
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        Stored& value = at(values + r * shape.columns + j);
        const int64_t i = r * shape.columns + j;
        if constexpr (HasResidual) at(new_residual + i) = at(old_residual + i) + (value - own[r]);
        value = mean[r];
      }
    }
    for (; j < n; ++j)
      for (int r = 0; r < R; ++r)
        rebuild_one(shape, left + r, mean_right + j, own_right + j, values + r * shape.columns + j,
                    old_residual + r * shape.columns + j, new_residual + r * shape.columns + j);
  }

  // Does the same for one element.
  [[gnu::always_inline]] static void rebuild_one(const MatrixShape& shape, const float* left,
                                                 const float* mean_right, const float* own_right,
                                                 float* value, const float* old_residual,
                                                 float* new_residual) {
    float mean = 0;
    float own = 0;
    for (int64_t k = 0; k < shape.rank; ++k) {
      mean += left[k * shape.rows] * mean_right[k * shape.columns];
      own += left[k * shape.rows] * own_right[k * shape.columns];
    }
    if constexpr (HasResidual) *new_residual = *old_residual + (*value - own);
    *value = mean;
  }

  // Calls rows(std::integral_constant<int, R>, first row, first column, columns) until the matrix
  // is covered.
  template <typename Rows>
  [[gnu::always_inline]] static void by_rows(const MatrixShape& shape, const Rows& rows) {
    constexpr int kRows = 4;
    for (int64_t begin = 0; begin < shape.columns; begin += kStretch) {
      const int64_t n = std::min(kStretch, shape.columns - begin);
      int64_t i = 0;
      for (; i + kRows <= shape.rows; i += kRows)
        rows(std::integral_constant<int, kRows>{}, i, begin, n);
      for (; i < shape.rows; ++i) rows(std::integral_constant<int, 1>{}, i, begin, n);
    }
  }

  [[gnu::always_inline]] static void multiply_left(const MatrixShape& shape, const float* values,
                                                   const float* residual, const float* left,
                                                   float* right) {
    std::fill_n(right, shape.right(), 0.0f);
    by_rows(shape, [&]<int R>(std::integral_constant<int, R>, int64_t row, int64_t begin,
                              int64_t n) __attribute__((always_inline)) {
      const int64_t at = row * shape.columns + begin;
      add_rows<R>(shape, n, values + at, residual + at, left + row, right + begin);
    });
  }

  [[gnu::always_inline]] static void reconstruct(const MatrixShape& shape, const float* left,
                                                 const float* mean_right, const float* own_right,
                                                 float* values, const float* old_residual,
                                                 float* new_residual) {
    by_rows(shape, [&]<int R>(std::integral_constant<int, R>, int64_t row, int64_t begin,
                              int64_t n) __attribute__((always_inline)) {
      const int64_t at = row * shape.columns + begin;
      rebuild_rows<R>(shape, n, left + row, mean_right + begin, own_right + begin, values + at,
                      old_residual + at, new_residual + at);
    });
  }
};

// These select the loops with or without residuals. Without one they pass `values` in its place,
// because arithmetic on a null pointer is undefined.
struct MultiplyRight {
  template <int W>
  [[gnu::always_inline]] static void run(const MatrixShape& shape, const float* values,
                                         const float* residual, const float* right, float* left) {
    if (residual != nullptr)
      Loops<W, true>::multiply_right(shape, values, residual, right, left);
    else
      Loops<W, false>::multiply_right(shape, values, values, right, left);
  }
};

struct MultiplyLeft {
  template <int W>
  [[gnu::always_inline]] static void run(const MatrixShape& shape, const float* values,
                                         const float* residual, const float* left, float* right) {
    if (residual != nullptr)
      Loops<W, true>::multiply_left(shape, values, residual, left, right);
    else
      Loops<W, false>::multiply_left(shape, values, values, left, right);
  }
};

struct Reconstruct {
  template <int W>
  [[gnu::always_inline]] static void run(const MatrixShape& shape, const float* left,
                                         const float* mean_right, const float* own_right,
                                         float* values, const float* old_residual,
                                         float* new_residual) {
    if (old_residual != nullptr)
      Loops<W, true>::reconstruct(shape, left, mean_right, own_right, values, old_residual,
                                  new_residual);
    else
      Loops<W, false>::reconstruct(shape, left, mean_right, own_right, values, values, values);
  }
};

}  // namespace ringdist::low_rank
