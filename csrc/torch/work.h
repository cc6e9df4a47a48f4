// c10d::Work of an op. Any thread; the GIL is not needed and must not be held in wait().
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "engine/communicator.h"
#include "torch/reported_work.h"
#include "torch/tensors.h"

namespace ringdist {

// Raises in a process that was forked from the one that waits for `what`.
void check_not_forked(Communicator& group, const std::string& what);

class RingWork final : public ReportedWork {
 public:
  // `outputs` is what the Future resolves to. `completions`: at least one; those are told of
  // success here if results have to be copied back, else by the op.
  static c10::intrusive_ptr<RingWork> create(std::shared_ptr<Communicator> communicator,
                                             std::shared_ptr<Op> op, c10d::OpType type,
                                             const char* title, std::vector<at::Tensor> inputs,
                                             std::vector<at::Tensor> outputs, Staging staging,
                                             std::vector<CompletionPtr> completions);

  // Public for make_intrusive; use create().
  RingWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op, c10d::OpType type,
           const char* title, const std::optional<std::vector<at::Tensor>>& inputs,
           std::vector<at::Tensor> outputs, Staging staging,
           std::vector<CompletionPtr> completions);
  ~RingWork() override;

  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  // Of a receive: the rank that the data came from; -1 while that is open.
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  // Returns true, or throws: what ended the op, or that `timeout` passed (the op then goes on).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  // Ends the op's whole group, on all ranks.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override;

 private:
  // Copies results back into the caller's tensors, once; whoever comes second waits for the first.
  void settle();
  void drive();
  void complete_future();

  const std::shared_ptr<Communicator> communicator_;
  const std::shared_ptr<Op> op_;
  const std::vector<at::Tensor> outputs_;
  const Staging staging_;
  const std::vector<CompletionPtr> completions_;
  std::once_flag settled_once_;
  std::exception_ptr unwritten_;  // why results could not be written; read it once settled_
  std::atomic<bool> settled_{false};
  std::atomic<bool> driven_{false};
  std::atomic<bool> asked_{false};
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made on demand
};

}  // namespace ringdist
