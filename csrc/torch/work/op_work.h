// Work of an op, on the host or on a device.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "torch/base/tensors.h"
#include "torch/work/base_work.h"

namespace ringdist {

// The Work of an op.
class HostOpWork final : public OpWork {
 public:
  // `completions`: at least one; those are told of success here if results have to be copied back,
  // else by the op.
  static c10::intrusive_ptr<HostOpWork> create(std::shared_ptr<Communicator> communicator,
                                               std::shared_ptr<Op> op, c10d::OpType type,
                                               const char* title, std::vector<at::Tensor> inputs,
                                               std::vector<at::Tensor> outputs, Staging staging,
                                               std::vector<CompletionPtr> completions);

  // Public for make_intrusive; use create().
  HostOpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op, c10d::OpType type,
             const char* title, const std::optional<std::vector<at::Tensor>>& inputs,
             std::vector<at::Tensor> outputs, Staging staging,
             std::vector<CompletionPtr> completions);
  ~HostOpWork() override;

  bool isCompleted() override;
  std::exception_ptr exception() const override;

 private:
  void await(std::optional<Milliseconds> limit) override;
  FuturePtr make_future() override;

  // At the end results must reach the caller's tensors, or a profiler its record.
  bool must_deliver_output() const { return staging_.must_finish() || recordFunctionEndCallback_; }
  // Does that, once; whoever comes second waits for the first.
  void deliver_output();
  void drive();
  void deliver_and_mark(c10::ivalue::Future& future);

  const Staging staging_;
  const std::vector<CompletionPtr> completions_;
  std::once_flag delivered_once_;
  std::exception_ptr unwritten_;  // why results could not be written; read it once settled_
  std::atomic<bool> delivered_{false};
  std::atomic<bool> driven_{false};
  std::atomic<bool> asked_{false};
};

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
