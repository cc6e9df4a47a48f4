// Operations that reduce, checked: each throws for arguments that it does not take.
#pragma once

#include <string>
#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

// torch 2.11 has no name for it.
template <typename OpType>
constexpr OpType reduce_scatter_coalesced() {
  if constexpr (requires { OpType::REDUCE_SCATTER_TENSOR_COALESCED; })
    return OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  else
    return OpType::_REDUCE_SCATTER_BASE;
}

// Of one tensor.
Call allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);
// As one op: of one dtype, dense; `argument` names the first.
Call allreduce_list_call(const Tensors& tensors, const std::string& argument,
                         const c10d::AllreduceOptions& opts);
// Of any dtypes.
Call allreduce_coalesced_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);

Call reduce_call(RankAndSize place, const Tensors& tensors, const c10d::ReduceOptions& opts);

// The inputs may differ in size: the output is as large as this rank's input.
Call reduce_scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts);
Call reduce_scatter_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::ReduceScatterOptions& opts);
// Of any dtypes.
std::vector<Call> reduce_scatter_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts);

// An allreduce of a sparse tensor, checked.
struct SparseCall {
  at::Tensor tensor;
  DType dtype;
  ReduceOp op;           // kSum or kAvg
  Milliseconds timeout;  // 0: the group's
};

SparseCall sparse_allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);

}  // namespace ringdist
