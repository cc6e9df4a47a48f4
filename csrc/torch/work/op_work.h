#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "torch/work/group_work.h"

namespace ringdist {

// What Works of an op share, wherever that runs.
class OpWork : public GroupWork {
 public:
  bool isSuccess() const final { return op_->finished() && !exception(); }
  // What ended the op.
  std::exception_ptr exception() const override;
  // Of a receive: the rank that the data came from; -1 while that is open.
  int sourceRank() const final;
  std::vector<at::Tensor> result() final { return outputs_; }

 protected:
  // `outputs` is what the Future resolves to.
  OpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
         CompletionPtr completion, c10d::OpType type, const char* title,
         const std::optional<std::vector<at::Tensor>>& inputs, std::vector<at::Tensor> outputs);

  // What it throws is logged: this may be a thread of ours.
  void tell_profiler();

  const std::shared_ptr<Op> op_;
  const std::vector<at::Tensor> outputs_;

 private:
  std::string describe() const final { return op_->describe(); }
  bool ended() final { return op_->finished(); }
  bool wait_until_ended(std::optional<Milliseconds> limit) final;
};

}  // namespace ringdist
