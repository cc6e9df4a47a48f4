// Operations in which each rank has something else for each, checked: each throws for arguments
// that it does not take.
#pragma once

#include <cstdint>
#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

// Splits are rows of dimension 0 for each rank; none: as many for each.
Call alltoall_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_splits,
                   const std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts);
Call alltoall_list_call(RankAndSize place, const Tensors& outputs, const Tensors& inputs,
                        const c10d::AllToAllOptions& opts);

}  // namespace ringdist
