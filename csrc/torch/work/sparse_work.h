#pragma once

#include <memory>
#include <vector>

#include "torch/work/group_work.h"

namespace ringdist {

// The Work of a sparse allreduce: ended by the thread that does its second round.
class SparseWork final : public GroupWork {
 public:
  SparseWork(std::shared_ptr<Communicator> group, const at::Tensor& tensor, uint64_t number);

  std::vector<at::Tensor> result() override { return {tensor_}; }

  // Once, with what the op ended with; null: `tensor` is the result.
  void end(const std::exception_ptr& error);

 private:
  std::string describe() const override { return "a sparse all_reduce"; }
  bool ended() override { return isCompleted(); }
  bool wait_until_ended(std::optional<Milliseconds> limit) override;
  FuturePtr make_future() override { return make_future_of_tensors(); }

  const at::Tensor tensor_;
};

}  // namespace ringdist
