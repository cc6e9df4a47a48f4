// Functions that check the arguments of operations that reduce, and make their Calls. Each throws
// for invalid arguments. Any thread.
#pragma once

#include <string>
#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

// Returns the OpType of the operation. PyTorch 2.11 has no name for it and uses another one.
template <typename OpType>
constexpr OpType reduce_scatter_coalesced() {
  if constexpr (requires { OpType::REDUCE_SCATTER_TENSOR_COALESCED; })
    return OpType::REDUCE_SCATTER_TENSOR_COALESCED;
  else
    return OpType::_REDUCE_SCATTER_BASE;
}

// Takes one tensor.
Call allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);
// Makes one op of dense tensors of one dtype. There is at least one, and the caller has checked all
// by check_tensor(). `argument` names the first tensor in errors.
Call allreduce_list_call(const Tensors& tensors, const std::string& argument,
                         const c10d::AllreduceOptions& opts);
// Takes tensors of one dtype.
Call allreduce_coalesced_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);

// Takes one tensor, which changes on the root only.
Call reduce_call(RankAndSize place, const Tensors& tensors, const c10d::ReduceOptions& opts);

// The inputs may differ in size. The output has the size of this rank's input.
Call reduce_scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                         const c10d::ReduceScatterOptions& opts);
Call reduce_scatter_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::ReduceScatterOptions& opts);
// Takes tensors of any dtypes. Returns a Call per dtype.
std::vector<Call> reduce_scatter_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts);

// A checked allreduce of a sparse tensor.
struct SparseCall {
  at::Tensor tensor;
  DType dtype;
  ReduceOp op;           // kSum or kAvg
  Milliseconds timeout;  // 0: the group's
};

// Checks an allreduce of one sparse (COO) tensor on the CPU.
SparseCall sparse_allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);

}  // namespace ringdist
