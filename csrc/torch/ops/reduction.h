#pragma once

#include <string>
#include <string_view>

#include "base/dtype.h"
#include "torch/ops/arguments.h"

namespace ringdist {

// How a call reduces, known to fit its tensors.
struct Reduction {
  // Throws for a reduction that `tensor`, called `argument`, does not take.
  static Reduction of(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                      const c10d::ReduceOp& given);

  // `ours` is a copy if there is a factor.
  void prepare(const at::Tensor& ours) const {
    if (factor) factor.multiply(ours);
  }

  ReduceOp op;
  DType dtype;
  PremulFactor factor;
};

}  // namespace ringdist
