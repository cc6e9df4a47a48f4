// DDP lays the elements of a gradient into its bucket as they lie in the parameter's memory, if
// that has no gaps and no overlaps (channels_last, a transposed weight), row-major otherwise. A
// residual has that order; a checkpoint has row-major values, whatever the memory of the model that
// loads it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace ringdist {

// The size of the dimension that varies least in memory, those of size 1 aside: the rows of the
// parameter's matrix. 1 for one element.
int64_t outermost_size(const at::Tensor& parameter);

// The values of one, of one dimension and as many elements as `parameter`, in the order of the
// other: contiguous, may share memory with what was given.
at::Tensor row_major(const at::Tensor& in_memory_order, const at::Tensor& parameter);
at::Tensor memory_order(const at::Tensor& row_major, const at::Tensor& parameter);

}  // namespace ringdist
