#include "torch/work/device_op_work.h"

#include <c10/core/StreamGuard.h>

#include <utility>

#include "torch/devices.h"
#include "torch/errors.h"

namespace ringdist {

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
  check_future();  // in a forked child nothing ever comes
  synchronize();
}

FuturePtr DeviceOpWork::make_future() {
  auto future = c10::make_intrusive<c10::ivalue::Future>(
      c10::ListType::create(c10::TensorType::get()), std::vector<c10::Device>{device_});
  const c10::Stream after = stream_after();
  if (back_) back_->block(after);
  const c10::StreamGuard guard(after);
  mark(*future, exception(), outputs_);
  return future;
}

}  // namespace ringdist
