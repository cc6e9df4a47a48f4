#pragma once

#include <exception>
#include <mutex>
#include <vector>

#include "torch/work/future.h"

namespace ringdist {

// A Future of a list of tensors that is complete when all of its parts are; the first error is its
// own. Any thread.
class FutureJoin {
 public:
  // No parts: complete at once.
  FutureJoin(std::vector<at::Tensor> value, size_t parts);

  const FuturePtr& future() const { return future_; }

  // One part has ended. Callbacks of the Future may run in here.
  void arrive(const std::exception_ptr& error);

 private:
  const std::vector<at::Tensor> value_;
  const FuturePtr future_ = make_future_of_tensors();
  std::mutex mutex_;
  size_t left_;
  bool ended_ = false;
};

}  // namespace ringdist
