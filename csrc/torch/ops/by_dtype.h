// Operations on lists of tensors, of any dtypes, are one op per dtype, in which no tensor is copied
// together with others.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

// Indices of the tensors of each dtype; dtypes in the order in which they first come.
std::vector<std::vector<size_t>> by_dtype(const Tensors& tensors);

Tensors pick(const Tensors& tensors, const std::vector<size_t>& indices);

}  // namespace ringdist
