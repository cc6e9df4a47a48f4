#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include "torch/tensors.h"
#include "torch/work/op_work.h"

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

}  // namespace ringdist
