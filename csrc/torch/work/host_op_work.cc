#include "torch/work/host_op_work.h"

namespace ringdist {

c10::intrusive_ptr<HostOpWork> HostOpWork::create(std::shared_ptr<Communicator> communicator,
                                                  std::shared_ptr<Op> op, c10d::OpType type,
                                                  const char* title, std::vector<at::Tensor> inputs,
                                                  std::vector<at::Tensor> outputs, Staging staging,
                                                  std::vector<CompletionPtr> completions) {
  auto work = c10::make_intrusive<HostOpWork>(std::move(communicator), std::move(op), type, title,
                                              std::move(inputs), std::move(outputs),
                                              std::move(staging), std::move(completions));
  // Also if nobody waits.
  if (work->must_deliver_output()) work->op_->when_finished([work] { work->deliver_output(); });
  return work;
}

HostOpWork::HostOpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
                       c10d::OpType type, const char* title,
                       const std::optional<std::vector<at::Tensor>>& inputs,
                       std::vector<at::Tensor> outputs, Staging staging,
                       std::vector<CompletionPtr> completions)
    : OpWork(std::move(communicator), std::move(op), completions.front(), type, title, inputs,
             std::move(outputs)),
      staging_(std::move(staging)),
      completions_(std::move(completions)) {}

HostOpWork::~HostOpWork() { drive(); }  // others wait for what this one drops

void HostOpWork::deliver_output() {
  if (!must_deliver_output()) return;  // call_once makes a system call
  std::call_once(delivered_once_, [this] {
    // No exception may leave: this may be a thread of ours.
    try {
      if (!op_->error()) staging_.finish();
    } catch (...) {
      unwritten_ = std::current_exception();
    }
    tell_profiler();
    delivered_ = true;
    if (staging_.must_finish() && !exception())
      for (const auto& completion : completions_) completion->arrive();
    // Last: who comes from a barrier after it finds it completed.
    if (op_->request.output_staged) group().output_delivered(op_->number);
  });
}

// An op whose caller said that it would wait, but asks otherwise.
void HostOpWork::drive() {
  if (op_->finished() || driven_.exchange(true) || group().context().forked()) return;
  group().context().progress().post([] {});
}

bool HostOpWork::isCompleted() {
  // PyTorch's flight recorder asks each Work once, also of a call that is about to wait; it must
  // hear of a success that it was told of before.
  const bool first = !asked_.exchange(true);
  if (!op_->finished()) {
    if (!first) drive();
    return false;
  }
  return delivered_ || (!staging_.must_finish() && (first || !recordFunctionEndCallback_));
}

std::exception_ptr HostOpWork::exception() const {
  if (auto cause = OpWork::exception()) return cause;
  return delivered_ ? unwritten_ : nullptr;
}

void HostOpWork::await(std::optional<Milliseconds> limit) {
  GroupWork::await(limit);
  deliver_output();
}

FuturePtr HostOpWork::make_future() {
  auto future = make_future_of_tensors();
  drive();
  if (op_->finished())
    deliver_and_mark(*future);
  else
    op_->when_finished([self = c10::intrusive_ptr<HostOpWork>::reclaim_copy(this), future] {
      self->deliver_and_mark(*future);
    });
  return future;
}

void HostOpWork::deliver_and_mark(c10::ivalue::Future& future) {
  deliver_output();
  mark(future, exception(), outputs_);
}

}  // namespace ringdist
