#include "torch/work/op_work.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "torch/base/devices.h"
#include "torch/base/errors.h"
#include "torch/work/base_work.h"

namespace ringdist {

c10::intrusive_ptr<HostOpWork> HostOpWork::create(std::shared_ptr<Communicator> communicator,
                                                  std::shared_ptr<Op> op, c10d::OpType type,
                                                  const char* title, std::vector<at::Tensor> inputs,
                                                  std::vector<at::Tensor> outputs, Staging staging,
                                                  std::vector<CompletionPtr> completions) {
  auto work = c10::make_intrusive<HostOpWork>(std::move(communicator), std::move(op), type, title,
                                              std::move(inputs), std::move(outputs),
                                              std::move(staging), std::move(completions));
  // Results are delivered even if no thread waits.
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

HostOpWork::~HostOpWork() { drive(); }  // other ranks may wait for an op that its caller drops

void HostOpWork::deliver_output() {
  if (!must_deliver_output()) return;  // checked first, because call_once makes a system call
  std::call_once(delivered_once_, [this] {
    // No exception may leave, since this may be a thread of the task pool.
    try {
      if (!op_->error()) staging_.finish();
    } catch (...) {
      unwritten_ = std::current_exception();
    }
    tell_profiler();
    delivered_ = true;
    if (staging_.must_finish() && !exception())
      for (const auto& completion : completions_) completion->arrive();
    // Last: a caller that returns from a later barrier finds this op completed.
    if (op_->request.output_staged) group().output_delivered(op_->number);
  });
}

// Needed if the caller has promised to wait, but does something else.
void HostOpWork::drive() {
  if (op_->finished() || driven_.exchange(true) || group().context().forked()) return;
  group().context().progress().post([] {});
}

bool HostOpWork::isCompleted() {
  // PyTorch's flight recorder queries each Work once, also a call that is about to wait. It must
  // see a success that the hooks have reported before.
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

c10::intrusive_ptr<DeviceOpWork> DeviceOpWork::create(
    std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op, c10::Device device,
    c10d::OpType type, const char* title, std::vector<at::Tensor> inputs,
    std::vector<at::Tensor> outputs, const Staging& staging, CompletionPtr completion) {
  auto work = c10::make_intrusive<DeviceOpWork>(std::move(communicator), std::move(op), device,
                                                type, title, std::move(inputs), std::move(outputs),
                                                std::move(completion));
  if (staging.must_finish()) work->give_back(staging);
  if (work->recordFunctionEndCallback_) work->op_->when_finished([work] { work->tell_profiler(); });
  return work;
}

DeviceOpWork::DeviceOpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
                           c10::Device device, c10d::OpType type, const char* title,
                           const std::optional<std::vector<at::Tensor>>& inputs,
                           std::vector<at::Tensor> outputs, CompletionPtr completion)
    : OpWork(std::move(communicator), std::move(op), std::move(completion), type, title, inputs,
             std::move(outputs)),
      device_(device) {}

c10::Stream DeviceOpWork::stream_after() const {
  const c10::Stream out = side_stream(device_);
  throw_if(op_->device_work->order(out.native_handle()));
  return out;
}

void DeviceOpWork::give_back(const Staging& staging) {
  const c10::Stream after = stream_after();
  const c10::StreamGuard guard(after);
  staging.finish();
  staging.for_each_back([&](const at::Tensor& theirs, const at::Tensor& ours) {
    use_on(theirs, after);
    use_on(ours, after);
  });
  back_.emplace(device_.type()).record(after);
}

void DeviceOpWork::synchronize() {
  const c10::Stream current = current_stream(device_);
  if (back_)
    back_->block(current);
  else
    throw_if(op_->device_work->order(current.native_handle()));
}

void DeviceOpWork::await(std::optional<Milliseconds>) {
  check_future();  // in a forked child the op never ends
  synchronize();
}

FuturePtr DeviceOpWork::make_future() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device_});
  // The Future records events on the current stream when it is marked, and waits of others order
  // streams behind them.
  const c10::Stream after = stream_after();
  if (back_) back_->block(after);
  const c10::StreamGuard guard(after);
  mark(*future, exception(), outputs_);
  return future;
}

}  // namespace ringdist
