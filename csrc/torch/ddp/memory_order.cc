#include "torch/ddp/memory_order.h"

#include <cstdint>

namespace ringdist {
namespace {

bool keeps_memory_order(const at::Tensor& parameter) {
  return parameter.is_non_overlapping_and_dense() && !parameter.is_contiguous();
}

}  // namespace

int64_t outermost_size(const at::Tensor& parameter) {
  const bool strided = keeps_memory_order(parameter);
  int64_t outermost = -1;
  for (int64_t d = 0; d < parameter.dim(); ++d)
    if (parameter.size(d) > 1 &&
        (outermost < 0 || (strided && parameter.stride(d) > parameter.stride(outermost))))
      outermost = d;
  return outermost < 0 ? 1 : parameter.size(outermost);
}

at::Tensor row_major(const at::Tensor& in_memory_order, const at::Tensor& parameter) {
  if (!keeps_memory_order(parameter)) return in_memory_order;
  return in_memory_order.as_strided(parameter.sizes(), parameter.strides()).contiguous().view(-1);
}

at::Tensor memory_order(const at::Tensor& row_major, const at::Tensor& parameter) {
  if (!keeps_memory_order(parameter)) return row_major;
  at::Tensor out = row_major.new_empty({row_major.numel()});
  out.as_strided(parameter.sizes(), parameter.strides()).copy_(row_major.view(parameter.sizes()));
  return out;
}

}  // namespace ringdist
