#include "torch/named/scale.h"

#include <ATen/ops/mul.h>
#include <ATen/ops/trunc.h>
#include <c10/core/GradMode.h>

namespace ringdist {
namespace {

at::ScalarType computed_in(at::ScalarType dtype) {
  if (at::isComplexType(dtype)) return dtype;
  const bool is_single = dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
  return is_single ? at::kFloat : at::kDouble;
}

}  // namespace

at::Tensor scaled_by(const at::Tensor& tensor, double factor) {
  const at::AutoGradMode no_grad(false);
  const at::ScalarType dtype = tensor.scalar_type();
  at::Tensor out = at::mul(tensor.to(computed_in(dtype)), factor);
  if (at::isIntegralType(dtype, /*includeBool=*/true)) out = at::trunc(out);
  return out.to(dtype);
}

}  // namespace ringdist
