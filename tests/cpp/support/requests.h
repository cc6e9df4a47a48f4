// Requests and ops for tests, with and without a Communicator to plan them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/op/op.h"
#include "plan/planner.h"

namespace ringdist {

// Returns an in-place allreduce over a vector. The vector must outlive the op.
template <typename T>
OpRequest allreduce_request(std::vector<T>& data, DType dtype, ReduceOp op) {
  OpRequest out;
  out.kind = Collective::kAllreduce;
  out.dtype = dtype;
  out.reduce_op = op;
  out.count = static_cast<int64_t>(data.size());
  out.output = Buffer(sizeof(T));
  out.output.append(data.data(), out.count);
  return out;
}

// Returns a request over `count` int32 elements, with SUM if the collective reduces. A null vector
// means no buffer. The vectors must outlive the op.
inline OpRequest int_request(Collective kind, int64_t count, std::vector<int32_t>* input,
                             std::vector<int32_t>* output) {
  OpRequest out;
  out.kind = kind;
  out.dtype = DType::kInt32;
  out.reduce_op = reduces(kind) ? ReduceOp::kSum : ReduceOp::kNone;
  out.count = count;
  out.input = out.output = Buffer(sizeof(int32_t));
  if (input != nullptr) out.input.append(input->data(), static_cast<int64_t>(input->size()));
  if (output != nullptr) out.output.append(output->data(), static_cast<int64_t>(output->size()));
  return out;
}

// Plans a request like Communicator::submit(). `number` stays 0 for a send or a receive.
inline std::shared_ptr<Op> planned_op(Planner& planner, OpRequest request, uint64_t number = 0) {
  auto op = std::make_shared<Op>(std::move(request));
  const PreparedPlan prepared = planner.prepare(op->request).value();
  op->plan = prepared.plan;
  op->schedule = prepared.schedule;
  op->fingerprint = op->called = prepared.fingerprint;
  op->number = number;
  return op;
}

}  // namespace ringdist
