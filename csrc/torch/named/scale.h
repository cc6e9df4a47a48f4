#pragma once

#include <ATen/core/Tensor.h>

namespace ringdist {

// Times the factor, in fp32 for fp16, bf16 and fp32, else in fp64, rounded to the tensor's dtype;
// integers truncate toward zero. Complex ones are multiplied in their own dtype. Outside autograd.
at::Tensor scaled_by(const at::Tensor& tensor, double factor);

}  // namespace ringdist
