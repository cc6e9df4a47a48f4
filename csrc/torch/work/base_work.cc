#include "torch/work/base_work.h"

#include <ATen/record_function.h>

#include <utility>

#include "base/log.h"
#include "torch/base/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {

bool BaseWork::wait(std::chrono::milliseconds timeout) {
  std::optional<Milliseconds> limit;
  if (timeout != kNoTimeout) limit = value_of(checked_timeout("wait", timeout));
  await(limit);
  if (has_future_) {
    FuturePtr future;
    {
      std::lock_guard lock(future_mutex_);
      future = future_;
    }
    future->wait();  // until it is marked, not until its callbacks have run
  }
  if (const auto error = exception()) {
    run_failure_hooks();
    std::rethrow_exception(error);
  }
  return true;
}

FuturePtr BaseWork::getFuture() {
  check_future();
  std::lock_guard lock(future_mutex_);
  if (!future_) {
    future_ = make_future();
    // wait() reads this without the lock, so that most waits do not take it.
    has_future_ = true;
  }
  return future_;
}

GroupWork::GroupWork(std::shared_ptr<Communicator> group, uint64_t number, CompletionPtr completion,
                     c10d::OpType type, const char* title,
                     const std::optional<std::vector<at::Tensor>>& inputs)
    : BaseWork(std::move(completion), group->rank(), type, title, inputs),
      group_(std::move(group)),
      number_(number) {}

void GroupWork::abort() {
  group_->abort(describe() + " was aborted by rank " + std::to_string(group_->rank()));
}

void GroupWork::await(std::optional<Milliseconds> limit) {
  check_not_forked();
  if (!wait_in_slices(limit, [this](auto slice) { return wait_until_ended(slice); }))
    throw_error(Error(ErrorKind::kTimeout,
                      "ringdist: Timed out waiting " + std::to_string(limit->count()) + " ms for " +
                          describe() + ", which goes on; only this wait has ended"));
}

void GroupWork::check_future() {
  if (!ended()) check_not_forked();
}

void GroupWork::check_not_forked() const {
  if (group_->context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: " + describe() +
                          " belongs to the process that this one was forked from; only that can "
                          "wait for it"));
}

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
  // The source of a receive from one rank is given by the call.
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
