#include "torch/work/op_work.h"

#include <ATen/record_function.h>

#include <utility>

#include "base/log.h"
#include "torch/errors.h"

namespace ringdist {

OpWork::OpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
               CompletionPtr completion, c10d::OpType type, const char* title,
               const std::optional<std::vector<at::Tensor>>& inputs,
               std::vector<at::Tensor> outputs)
    : GroupWork(std::move(communicator), op->number, std::move(completion), type, title, inputs),
      op_(std::move(op)),
      outputs_(std::move(outputs)) {}

std::exception_ptr OpWork::exception() const {
  const Error error = op_->error();
  return error ? to_exception(error) : nullptr;
}

int OpWork::sourceRank() const {
  const auto& envelope = op_->request.envelope;
  TORCH_CHECK(envelope && !envelope->sends, "ringdist: only the work of a recv has a source rank");
  // That of an endpoint is known from the start.
  return envelope->peer == Envelope::kAnySource ? op_->source() : envelope->peer;
}

bool OpWork::wait_until_ended(std::optional<Milliseconds> limit) {
  return group().wait(*op_, limit);
}

void OpWork::tell_profiler() {
  try {
    if (recordFunctionEndCallback_) recordFunctionEndCallback_();
  } catch (const std::exception& error) {
    log(LogLevel::kError, op_->describe() + ": a profiler's callback threw: " + error.what());
  }
}

}  // namespace ringdist
