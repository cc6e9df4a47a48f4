// What PowerSGD computes for the matrices of a bucket on a device, in three stages, between which
// factors are averaged over the ranks. A stage only puts work on the current stream. Called once
// each, in this order.
#pragma once

#include <ATen/core/Tensor.h>

namespace ringdist {

class LowRankStages {
 public:
  virtual ~LowRankStages() = default;

  // What is to be averaged in place: fp32, of one dimension.
  virtual at::Tensor lefts() = 0;
  virtual at::Tensor rights() = 0;  // the lefts have been averaged
  // The rights have: writes the averages of the matrices, and what is kept for the next step.
  virtual void finish() = 0;
};

}  // namespace ringdist
