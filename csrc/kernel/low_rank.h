// Matrix loops of PowerSGD: products of a tall or wide row-major matrix with a few columns. T.
// Vogels, S. P. Karimireddy, M. Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
// Distributed Optimization", NeurIPS 2019.
//
// Factors of `rank` columns are stored column by column. Sums have a fixed order, so that all
// machines get the same bits. Spans must not overlap. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/matrix_shape.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Computes left = (values + residual) * right. An empty residual counts as zeros. Spans have the
// sizes that `shape` gives: count(), count() or 0, right() and left() elements.
void multiply_right(const MatrixShape& shape, std::span<const float> values,
                    std::span<const float> residual, std::span<const float> right,
                    std::span<float> left);

// Computes right = transpose(values + residual) * left. The rows are added one after another.
void multiply_left(const MatrixShape& shape, std::span<const float> values,
                   std::span<const float> residual, std::span<const float> left,
                   std::span<float> right);

// Makes the `rank` columns of `left` orthonormal by the modified Gram-Schmidt process, whatever
// their magnitudes. A column that depends on earlier ones, or is zero, is replaced by noise.
// Otherwise its direction would never come back, because each approximation starts from the last
// one. If there are more columns than rows, the surplus columns become zeros. Input that is not
// finite gives output that is not finite.
void orthonormalise(const MatrixShape& shape, std::span<float> left);

// Sets `right` for the next approximation to the columns of `from`. Each is multiplied by a power
// of two that brings its largest element near 1. A column of zeros has no direction, so the old
// column stays.
void keep_directions(const MatrixShape& shape, std::span<const float> from, std::span<float> right);

// Fills `out` with values uniform in [-1, 1] that depend on the seed and the index only. They are
// integers of 32 bits, rounded to fp32 and scaled by a power of two, so that all machines draw the
// same. Rounding can give 1.
void draw_noise(uint64_t seed, std::span<float> out);

// Computes values = left * transpose(mean_right), the approximation of the mean of all ranks.
// `own_right` is this rank's factor before the average. The new residual is the old residual + the
// old values - left * transpose(own_right).
void reconstruct(const MatrixShape& shape, std::span<const float> left,
                 std::span<const float> mean_right, std::span<const float> own_right,
                 std::span<float> values, ResidualSpan residual);

// Returns true if no value is inf or NaN.
bool all_finite(std::span<const float> values);

// multiply_right(), multiply_left() and reconstruct() for one instruction set: same contract, same
// bits. Residuals may be null. The functions above choose among them, and tests compare them.
struct LowRankLoops {
  void (*multiply_right)(const MatrixShape& shape, const float* values, const float* residual,
                         const float* right, float* left);
  void (*multiply_left)(const MatrixShape& shape, const float* values, const float* residual,
                        const float* left, float* right);
  void (*reconstruct)(const MatrixShape& shape, const float* left, const float* mean_right,
                      const float* own_right, float* values, const float* old_residual,
                      float* new_residual);
};

const LowRankLoops* low_rank_baseline();
// These return null if this processor lacks the instructions.
const LowRankLoops* low_rank_avx2();
const LowRankLoops* low_rank_avx512();  // needs AVX-512F

}  // namespace ringdist
