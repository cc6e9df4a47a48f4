#include "torch/work.h"

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <ATen/record_function.h>

#include "base/log.h"
#include "torch/errors.h"
#include "torch/interrupts.h"

namespace ringdist {

void check_not_forked(Communicator& group, const std::string& what) {
  if (group.context().forked())
    throw_error(Error(ErrorKind::kAborted,
                      "ringdist: " + what +
                          " belongs to the process that this one was forked from; only that can "
                          "wait for it"));
}

c10::intrusive_ptr<RingWork> RingWork::create(std::shared_ptr<Communicator> communicator,
                                              std::shared_ptr<Op> op, c10d::OpType type,
                                              const char* title, std::vector<at::Tensor> inputs,
                                              std::vector<at::Tensor> outputs, Staging staging,
                                              std::vector<CompletionPtr> completions) {
  auto work = c10::make_intrusive<RingWork>(std::move(communicator), std::move(op), type, title,
                                            std::move(inputs), std::move(outputs),
                                            std::move(staging), std::move(completions));
  // Results must reach the caller's tensors, and a profiler its record, also if nobody waits.
  if (work->staging_.must_finish() || work->recordFunctionEndCallback_)
    work->op_->when_finished([work] { work->settle(); });
  return work;
}

RingWork::RingWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
                   c10d::OpType type, const char* title,
                   const std::optional<std::vector<at::Tensor>>& inputs,
                   std::vector<at::Tensor> outputs, Staging staging,
                   std::vector<CompletionPtr> completions)
    : ReportedWork(completions.front(), communicator->rank(), type, title, inputs),
      communicator_(std::move(communicator)),
      op_(std::move(op)),
      outputs_(std::move(outputs)),
      staging_(std::move(staging)),
      completions_(std::move(completions)) {}

RingWork::~RingWork() { drive(); }  // others wait for what this one drops

void RingWork::settle() {
  std::call_once(settled_once_, [this] {
    // No exception may leave: this may be a thread of ours.
    try {
      if (!op_->error()) staging_.finish();
    } catch (...) {
      unwritten_ = std::current_exception();
    }
    try {
      if (recordFunctionEndCallback_) recordFunctionEndCallback_();
    } catch (const std::exception& error) {
      log(LogLevel::kError, op_->describe() + ": a profiler's callback threw: " + error.what());
    }
    settled_ = true;
    if (staging_.must_finish() && !exception())
      for (const auto& completion : completions_) completion->arrive();
    // Last: who comes from a barrier after it finds it completed.
    if (op_->request.hands_over) communicator_->handed_over(op_->number);
  });
}

// An op whose caller said that it would wait, but asks otherwise.
void RingWork::drive() {
  if (op_->finished() || driven_.exchange(true) || communicator_->context().forked()) return;
  communicator_->context().lane().post([] {});
}

bool RingWork::isCompleted() {
  // PyTorch's flight recorder asks each Work once, also of a call that is about to wait; it must
  // hear of a success that it was told of before.
  const bool first = !asked_.exchange(true);
  if (!op_->finished()) {
    if (!first) drive();
    return false;
  }
  return settled_ || (!staging_.must_finish() && (first || !recordFunctionEndCallback_));
}

bool RingWork::isSuccess() const { return op_->finished() && !exception(); }

std::exception_ptr RingWork::exception() const {
  if (const Error error = op_->error()) return to_exception(error);
  return settled_ ? unwritten_ : nullptr;
}

int RingWork::sourceRank() const {
  const auto& endpoint = op_->request.endpoint;
  TORCH_CHECK(endpoint && !endpoint->sends, "ringdist: only the work of a recv has a source rank");
  // That of an endpoint is known from the start.
  return endpoint->peer == Endpoint::kAnySource ? op_->source() : endpoint->peer;
}

std::vector<at::Tensor> RingWork::result() { return outputs_; }

void RingWork::synchronize() {}  // results of host tensors are there when the op is complete

void RingWork::blockCurrentStream() { wait(); }

bool RingWork::wait(std::chrono::milliseconds timeout) {
  check_not_forked(*communicator_, op_->describe());
  std::optional<Milliseconds> limit;
  if (timeout != kNoTimeout && timeout.count() > 0) limit = timeout;
  if (!wait_in_slices(limit, [this](auto slice) { return communicator_->wait(*op_, slice); }))
    throw_error(Error(ErrorKind::kTimeout,
                      "ringdist: Timed out waiting " + std::to_string(limit->count()) + " ms for " +
                          op_->describe() + ", which goes on; only this wait has ended"));
  settle();
  c10::intrusive_ptr<c10::ivalue::Future> future;
  {
    std::lock_guard lock(future_mutex_);
    future = future_;
  }
  if (future) future->wait();  // until it is marked, not until its callbacks have run
  if (const auto error = exception()) {
    communicator_->tell_failure();
    std::rethrow_exception(error);
  }
  return true;
}

void RingWork::abort() {
  communicator_->abort(op_->describe() + " was aborted by rank " +
                       std::to_string(communicator_->rank()));
}

c10::intrusive_ptr<c10::ivalue::Future> RingWork::getFuture() {
  if (!op_->finished()) check_not_forked(*communicator_, op_->describe());
  std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  drive();
  if (op_->finished())
    complete_future();
  else
    op_->when_finished(
        [self = c10::intrusive_ptr<RingWork>::reclaim_copy(this)] { self->complete_future(); });
  return future_;
}

void RingWork::complete_future() {
  settle();
  if (const auto error = exception())
    future_->setError(error);
  else
    future_->markCompleted(c10::IValue(outputs_));
}

uint64_t RingWork::getSequencenumber() const { return op_->number; }

}  // namespace ringdist
