// PowerSGD's arithmetic by ATen, on whatever device the bucket is: what compress/low_rank.cc and
// kernel/low_rank.h do in the host's memory, in other bits. Waits for nothing.
//
// Ranks whose devices compute alike, that is of one model and with the same libraries, get the same
// bits of the same factors: nothing here depends on what a rank alone has, but for its own factors,
// which are averaged, and its residual.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "compress/bucket.h"

namespace ringdist {

// What PowerSGD computes for the matrices of a bucket on a device, in three stages, between which
// factors are averaged over the ranks. A stage only puts work on the current stream. Called once
// each, in this order.
class LowRankStages {
 public:
  virtual ~LowRankStages() = default;

  // What is to be averaged in place: fp32, of one dimension.
  virtual at::Tensor lefts() = 0;
  virtual at::Tensor rights() = 0;  // the lefts have been averaged
  // The rights have: writes the averages of the matrices, and what is kept for the next step.
  virtual void finish() = 0;
};

class LowRankTensors final : public LowRankStages {
 public:
  // `bucket`: float32, bfloat16 or float16, of one dimension. All memory outlives the work.
  LowRankTensors(const at::Tensor& bucket, const std::vector<LowRankInput>& inputs);

  at::Tensor lefts() override;
  at::Tensor rights() override;
  void finish() override;

 private:
  // Factors lie as in kernel/low_rank.h, column after column: here they are rows.
  struct Matrix {
    MatrixShape shape;
    at::Tensor values;      // [rows, columns], of the bucket
    at::Tensor residual;    // fp32, as values; not defined without error feedback
    at::Tensor next;        // the same, what will be owed
    at::Tensor from;        // [rank, columns]: the last right
    at::Tensor next_right;  // the next one's beginning
    at::Tensor whole;       // values + residual, fp32: `next` if there is one
    at::Tensor silent;      // bool: all values are zero; sends zeros and keeps its residual
    at::Tensor left;        // [rank, rows]
    at::Tensor right;       // [rank, columns]
    at::Tensor own_right;   // before it was averaged
  };
  static void write(Matrix& matrix);

  std::vector<Matrix> matrices_;
  at::Tensor lefts_, rights_;
};

}  // namespace ringdist
