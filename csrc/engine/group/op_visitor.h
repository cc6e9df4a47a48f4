// How those who keep a group's ops show them and let them go.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "engine/op/op_execution.h"

namespace ringdist {

// An op, and its OpExecution if it has begun. Those on a device have none.
using OpVisitor = std::function<void(const std::shared_ptr<Op>& op, OpExecution* run)>;

// Takes a OpExecution that has ended and may be on the stack still. What throws has taken nothing.
using RetireExecution = std::function<void(OpExecutionPtr&& run)>;

// Ends all of a map of OpExecutions: each is stopped before its op is told, as the op's owner may
// use the tensors once told. What throws half-way leaves the rest for another call.
template <typename Runs>
void end_executions(Runs& runs, const OpVisitor& tell, const RetireExecution& retire) {
  for (; !runs.empty(); runs.erase(runs.begin())) {
    auto& run = runs.begin()->second;
    run->stop();
    tell(run->op(), run.get());
    retire(std::move(run));
  }
}

// "all_reduce #2 (float32, 4 elements, SUM, on cuda): in the hands of device 0"
inline std::string dump_on_device(const Op& op) {
  return op.describe() + ": in the hands of device " +
         std::to_string(op.request.device_stream->device);
}

}  // namespace ringdist
