// Functions that check the arguments of all-to-all operations and make their Calls. Each throws for
// invalid arguments. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

// Splits are the rows of dimension 0 for each rank, and must add up to all rows. Without splits all
// ranks get equally many. Input and output may share memory; then the input is copied.
Call alltoall_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                   const std::vector<int64_t>& output_splits,
                   const std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts);
// Both lists have one tensor per rank, of one dtype. The two tensors for this rank have one size.
Call alltoall_list_call(RankAndSize place, const Tensors& outputs, const Tensors& inputs,
                        const c10d::AllToAllOptions& opts);

}  // namespace ringdist
