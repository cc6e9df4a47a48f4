#pragma once

#include "torch/ops/call.h"

namespace ringdist {

// An allreduce of a sparse tensor, checked.
struct SparseCall {
  at::Tensor tensor;
  DType dtype;
  ReduceOp op;           // kSum or kAvg
  Milliseconds timeout;  // 0: the group's
};

SparseCall sparse_allreduce_call(const Tensors& tensors, const c10d::AllreduceOptions& opts);

}  // namespace ringdist
