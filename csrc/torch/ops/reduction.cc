#include "torch/ops/reduction.h"

#include "torch/errors.h"
#include "torch/tensors.h"

namespace ringdist {

Reduction Reduction::of(std::string_view op, const std::string& argument, const at::Tensor& tensor,
                        const c10d::ReduceOp& given) {
  const ReduceOp reduce_op = value_of(to_reduce_op(op, given));
  const DType dtype = value_of(to_dtype(op, argument, tensor, reduce_op));
  return {reduce_op, dtype, value_of(PremulFactor::of(op, given, tensor))};
}

}  // namespace ringdist
