#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <vector>

#include "torch/tensors.h"
#include "torch/work/op_work.h"

namespace ringdist {

// The Work of an op on a device. It does not block the host: wait() orders the current stream after
// the op, as of PyTorch's other backends for devices, and throws what has ended the op by then.
class DeviceOpWork final : public OpWork {
 public:
  // Of an op that was started. Results that have to go back to the caller's tensors do so on a
  // stream beside the caller's, after the op.
  static c10::intrusive_ptr<DeviceOpWork> create(std::shared_ptr<Communicator> communicator,
                                                 std::shared_ptr<Op> op, c10::Device device,
                                                 c10d::OpType type, const char* title,
                                                 std::vector<at::Tensor> inputs,
                                                 std::vector<at::Tensor> outputs,
                                                 const Staging& staging, CompletionPtr completion);

  // Public for make_intrusive; use create().
  DeviceOpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
               c10::Device device, c10d::OpType type, const char* title,
               const std::optional<std::vector<at::Tensor>>& inputs,
               std::vector<at::Tensor> outputs, CompletionPtr completion);

  // The device has done it, or something has ended it.
  bool isCompleted() override { return op_->finished(); }
  void synchronize() override;

 private:
  void await(std::optional<Milliseconds> limit) override;
  // Marked at once: who waits for it has a stream wait.
  FuturePtr make_future() override;

  // A stream beside the caller's on which what comes now comes after the op. PyTorch has 32, and
  // hands them out in turn: no op waits on one that need not, lest others wait there with it.
  c10::Stream stream_after() const;
  void give_back(const Staging& staging);

  const c10::Device device_;
  std::optional<c10::Event> back_;  // results are where the caller wants them, later than the op
};

}  // namespace ringdist
