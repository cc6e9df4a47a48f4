// Functions that check the arguments of operations that only move data, and make their Calls. Each
// throws for invalid arguments. Any thread.
#pragma once

#include <vector>

#include "torch/ops/call.h"

namespace ringdist {

Call broadcast_call(RankAndSize place, const Tensors& tensors, const c10d::BroadcastOptions& opts);

// The outputs may differ in size. The input has the size of this rank's output.
Call allgather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                    const c10d::AllgatherOptions& opts);
// Takes tensors of any dtypes; `outputs` has a list for each rank. Returns a Call per dtype.
std::vector<Call> allgather_calls(RankAndSize place, const TensorLists& outputs,
                                  const Tensors& inputs, const c10d::AllgatherOptions& opts);
// The output has as many elements as the inputs of all ranks. The input may be its part of it.
Call allgather_into_tensor_call(RankAndSize place, const at::Tensor& output,
                                const at::Tensor& input, const c10d::AllgatherOptions& opts);
// Takes tensors of any dtypes. Returns a Call per dtype.
std::vector<Call> allgather_into_tensor_calls(RankAndSize place, const Tensors& outputs,
                                              const Tensors& inputs,
                                              const c10d::AllgatherOptions& opts);

// Only the root gives outputs, in one list with a tensor per rank.
Call gather_call(RankAndSize place, const TensorLists& outputs, const Tensors& inputs,
                 const c10d::GatherOptions& opts);
// The output is needed at the root only. It gets the inputs of all ranks, in their order.
Call gather_into_tensor_call(RankAndSize place, const at::Tensor& output, const at::Tensor& input,
                             const c10d::GatherOptions& opts);

// Only the root gives inputs, in one list with a tensor per rank.
Call scatter_call(RankAndSize place, const Tensors& outputs, const TensorLists& inputs,
                  const c10d::ScatterOptions& opts);

// Makes a barrier, an operation without data.
inline Call barrier_call(const c10d::BarrierOptions& opts) {
  return Call(Collective::kBarrier, DType::kBytes, c10d::OpType::BARRIER, "ringdist:barrier",
              Call::wait_options(opts));
}

// Sends and receives of one tensor, with a tag of at least 0. They have no op number, and use the
// group's timeout.
Call send_call(RankAndSize place, const Tensors& tensors, int to, int tag);
Call recv_call(RankAndSize place, const Tensors& tensors, int from, int tag);
// Receives from the first rank that sends with this tag. Tensors on devices are refused when the
// call is submitted.
Call recv_any_call(const Tensors& tensors, int tag);

}  // namespace ringdist
