// Types and helpers for classes that own a group's ops (Collectives, PointToPoint): visiting ops,
// and ending their executions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/op/op_execution.h"

namespace ringdist {

// Called with an op and its OpExecution. The execution is null if the op has not started or is on a
// device.
using OpVisitor = std::function<void(const std::shared_ptr<Op>& op, OpExecution* run)>;

// Takes ownership of an OpExecution that has ended and may still be on the stack. If it throws, it
// has taken nothing.
using RetireExecution = std::function<void(OpExecutionPtr&& run)>;

// Ends all OpExecutions of a map. Each is stopped before `tell` is called for its op, as the op's
// owner may use the tensors from then on. If something throws, the rest is left for another call.
template <typename Runs>
void end_executions(Runs& runs, const OpVisitor& tell, const RetireExecution& retire) {
  for (; !runs.empty(); runs.erase(runs.begin())) {
    auto& run = runs.begin()->second;
    run->stop();
    tell(run->op(), run.get());
    retire(std::move(run));
  }
}

// Returns a line such as "all_reduce #2 (float32, 4 elements, SUM, on cuda): in the hands of device
// 0".
inline std::string dump_on_device(const Op& op) {
  return op.describe() + ": in the hands of device " +
         std::to_string(op.request.device_stream->device);
}

}  // namespace ringdist
