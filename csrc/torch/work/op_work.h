// HostOpWork and DeviceOpWork: Works of ops on the host and on devices. Any thread.
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

// The Work of an op on the host. Copies results to the caller's tensors if these are not
// contiguous.
class HostOpWork final : public OpWork {
 public:
  // Makes the Work of a submitted op. `completions` has at least one element. They are completed
  // here if results have to be copied back, else by the op.
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

  // Returns true if results must be copied to the caller's tensors, or a profiler must be called.
  bool must_deliver_output() const { return staging_.must_finish() || recordFunctionEndCallback_; }
  // Does this once. A second caller waits for the first.
  void deliver_output();
  // Makes the progress thread run an op that was submitted with will_wait, if its caller does not
  // wait. Does this once. Does nothing in a forked child.
  void drive();
  // Delivers the output and marks the Future.
  void deliver_and_mark(c10::ivalue::Future& future);

  const Staging staging_;
  const std::vector<CompletionPtr> completions_;
  std::once_flag delivered_once_;
  std::exception_ptr unwritten_;  // error of copying results back; valid once delivered_ is set
  std::atomic<bool> delivered_{false};  // deliver_output() has ended
  std::atomic<bool> driven_{false};     // drive() has been called
  std::atomic<bool> asked_{false};      // isCompleted() has been called
};

// The Work of an op on a device. It does not block the host: wait() makes the current stream wait
// for the op, as with PyTorch's other device backends. It throws an error that has ended the op by
// that time.
class DeviceOpWork final : public OpWork {
 public:
  // Makes the Work of an op that was started. Results for the caller's tensors are copied back on a
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

  // Returns true when the device has run the op, or an error has ended it.
  bool isCompleted() override { return op_->finished(); }
  void synchronize() override;

 private:
  void await(std::optional<Milliseconds> limit) override;
  // The Future is marked at once; waiting for it makes a stream wait for the op.
  FuturePtr make_future() override;

  // Returns a stream beside the caller's on which later work waits for the op. PyTorch has 32 and
  // hands them out in turn. Only work that must wait uses one, since other users of the stream wait
  // with it.
  c10::Stream stream_after() const;
  // Copies results to the caller's tensors, on such a stream.
  void give_back(const Staging& staging);

  const c10::Device device_;
  // Results are in the caller's tensors; none if no copy is needed.
  std::optional<c10::Event> back_;
};

}  // namespace ringdist
