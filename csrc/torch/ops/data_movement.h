// Operations between one rank and all, and from all to all alike, that only move data, checked:
// each throws for arguments that it does not take.
#pragma once

#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

Call broadcast_call(RankAndSize place, const Tensors& tensors, const c10d::BroadcastOptions& opts);

// The outputs may differ in size: the input is as large as this rank's output.
Call allgather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                    const c10d::AllgatherOptions& opts);
// Of any dtypes; a list of outputs for each rank.
std::vector<Call> allgather_calls(RankAndSize place, const TensorLists& outputs,
                                  const Tensors& inputs, const c10d::AllgatherOptions& opts);
Call allgather_into_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::AllgatherOptions& opts);
// Of any dtypes.
std::vector<Call> allgather_into_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::AllgatherOptions& opts);

Call gather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                 const c10d::GatherOptions& opts);
Call gather_into_tensor_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                             const c10d::GatherOptions& opts);

Call scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                  const c10d::ScatterOptions& opts);

// The operation without data.
inline Call barrier_call(const c10d::BarrierOptions& opts) {
  return Call(Collective::kBarrier, DType::kBytes, c10d::OpType::BARRIER, "ringdist:barrier",
              Call::wait_options(opts));
}

// Operations between two ranks, checked: each throws for arguments that it does not take. They take
// no op number, and have the group's timeout.
Call send_call(RankAndSize place, const Tensors& tensors, int to, int tag);
Call recv_call(RankAndSize place, const Tensors& tensors, int from, int tag);
// From whoever sends first.
Call recv_any_call(const Tensors& tensors, int tag);

}  // namespace ringdist
