// LowRankTensors: PowerSGD's arithmetic with ATen (Vogels et al., NeurIPS 2019), on any device.
// compress/low_rank.cc and kernel/low_rank.h do the same in host memory, with results that differ
// in rounding. Does not block.
//
// A step is one power iteration. The left factor is the matrix times the right factor of the last
// step, and is made orthonormal. The new right factor is the matrix, transposed, times the left
// one.
//
// Ranks on devices that compute alike (one model, the same libraries) get the same bits from the
// same factors. Results depend only on data that all ranks have, and on the own factors and
// residual. The factors are averaged.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compress/bucket.h"

namespace ringdist {

// The stages of PowerSGD for the matrices of a bucket on a device. Between the stages, factors are
// averaged over the ranks. A stage only queues work on the current stream. Call each once, in this
// order.
class LowRankStages {
 public:
  virtual ~LowRankStages() = default;

  // Returns the left factors, to be averaged in place. They are fp32, with one dimension.
  virtual at::Tensor lefts() = 0;
  virtual at::Tensor rights() = 0;  // the lefts have been averaged; returns the right factors
  // The right factors have been averaged: writes the averages of the matrices, and the data for the
  // next step.
  virtual void finish() = 0;
};

// The stages with ATen. One thread at a time.
class LowRankTensors final : public LowRankStages {
 public:
  // `bucket` is float32, bfloat16 or float16, with one dimension. The caller keeps all memory alive
  // until the work is done.
  LowRankTensors(const at::Tensor& bucket, const std::vector<LowRankInput>& inputs);

  at::Tensor lefts() override;
  at::Tensor rights() override;
  void finish() override;

 private:
  // Factors are stored column after column, as in kernel/low_rank.h. As tensors, each column is a
  // row.
  struct Matrix {
    MatrixShape shape;
    at::Tensor values;      // [rows, columns], in the bucket
    at::Tensor residual;    // fp32, shaped like values; undefined without error feedback
    at::Tensor next;        // the new residual, shaped alike
    at::Tensor from;        // [rank, columns]: the right factor of the last step
    at::Tensor next_right;  // the right factor from which the next step starts
    at::Tensor whole;       // values + residual, in fp32; it is `next` with error feedback
    at::Tensor silent;  // bool: all values are zero, so the rank sends zeros and keeps its residual
    at::Tensor left;    // [rank, rows]
    at::Tensor right;   // [rank, columns]
    at::Tensor own_right;  // before the average
  };
  // Writes the average and the new residual of one matrix.
  static void write(Matrix& matrix);

  std::vector<Matrix> matrices_;
  at::Tensor lefts_, rights_;
};

}  // namespace ringdist
