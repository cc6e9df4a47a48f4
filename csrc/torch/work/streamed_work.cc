#include "torch/work/streamed_work.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "torch/devices.h"
#include "torch/errors.h"

namespace ringdist {

c10::intrusive_ptr<StreamedWork> StreamedWork::create(
    std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op, c10::Device device,
    c10d::OpType type, const char* title, std::vector<at::Tensor> inputs,
    std::vector<at::Tensor> outputs, const Staging& staging, CompletionPtr completion) {
  auto work = c10::make_intrusive<StreamedWork>(std::move(communicator), std::move(op),
                                                side_stream(device), type, title, std::move(inputs),
                                                std::move(outputs), std::move(completion));
  throw_if(work->op_->device_work->order(work->after_.native_handle()));
  if (staging.must_finish()) work->give_back(staging);
  work->done_.record(work->after_);
  if (work->recordFunctionEndCallback_) work->op_->when_finished([work] { work->tell_profiler(); });
  return work;
}

StreamedWork::StreamedWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
                           c10::Stream after, c10d::OpType type, const char* title,
                           const std::optional<std::vector<at::Tensor>>& inputs,
                           std::vector<at::Tensor> outputs, CompletionPtr completion)
    : OpWork(std::move(communicator), std::move(op), std::move(completion), type, title, inputs,
             std::move(outputs)),
      after_(after),
      done_(after.device_type()) {}

void StreamedWork::give_back(const Staging& staging) {
  const c10::StreamGuard guard(after_);
  staging.finish();
  staging.for_each_back([this](const at::Tensor& theirs, const at::Tensor& ours) {
    use_on(theirs, after_);
    use_on(ours, after_);
  });
}

void StreamedWork::synchronize() { done_.block(current_stream(after_.device())); }

void StreamedWork::await(std::optional<Milliseconds>) {
  check_future();  // in a forked child nothing ever comes
  synchronize();
}

FuturePtr StreamedWork::make_future() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{after_.device()});
  const c10::StreamGuard guard(after_);
  mark(*future, exception(), outputs_);
  return future;
}

}  // namespace ringdist
