// The loops of PowerSGD: products of a tall or wide row-major matrix with a few columns. T. Vogels,
// S. P. Karimireddy, M. Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
// Optimization", NeurIPS 2019.
//
// A factor of `rank` columns is kept column after column. Sums have a fixed order of their own, so
// that all machines get the same bits. Any thread; no overlaps.
#pragma once

#include <cstdint>
#include <span>

#include "kernel/matrix_shape.h"
#include "kernel/residual_span.h"

namespace ringdist {

// left = (values + residual) * right; an empty residual counts as zeros.
void multiply_right(const MatrixShape& shape, std::span<const float> values,
                    std::span<const float> residual, std::span<const float> right,
                    std::span<float> left);

// right = transpose(values + residual) * left.
void multiply_left(const MatrixShape& shape, std::span<const float> values,
                   std::span<const float> residual, std::span<const float> left,
                   std::span<float> right);

// Makes the `rank` columns of `left` orthonormal, by the modified Gram-Schmidt process, whatever
// their magnitudes. A column that depends on the earlier ones, one of zeros too, is replaced by
// noise: a direction that is dropped would never come back, because each approximation begins at
// the last one. Zeros only where there are more columns than rows. Not finite in, not finite out.
void orthonormalise(const MatrixShape& shape, std::span<float> left);

// The `right` of the next approximation: the columns of `from`, each times a power of two that
// brings its largest element near 1; a column of zeros says nothing, and the old one stays.
void keep_directions(const MatrixShape& shape, std::span<const float> from, std::span<float> right);

// Uniform in [-1, 1), a function of the seed and the place alone: exact, so that all machines draw
// the same.
void draw_noise(uint64_t seed, std::span<float> out);

// values = left * transpose(mean_right); owed from now on: what was owed + the old values - left *
// transpose(own_right).
void reconstruct(const MatrixShape& shape, std::span<const float> left,
                 std::span<const float> mean_right, std::span<const float> own_right,
                 std::span<float> values, ResidualSpan residual);

bool all_finite(std::span<const float> values);

// The first three for one instruction set each: same contract, same bits; what is owed may be null.
// For them to choose from, and for tests to compare.
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
// Null where this processor cannot run them.
const LowRankLoops* low_rank_avx2();
const LowRankLoops* low_rank_avx512();  // F

}  // namespace ringdist
