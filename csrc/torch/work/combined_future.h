#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

#include "torch/work/future.h"

namespace ringdist {

// A Future of a list of tensors that is complete when all of its parts are; the first error is its
// own. Any thread.
class CombinedFuture {
 public:
  // No parts: complete at once.
  CombinedFuture(std::vector<at::Tensor> value, size_t parts);

  const FuturePtr& future() const { return future_; }

  // One part has ended. Callbacks of the Future may run in here.
  void arrive(const std::exception_ptr& error);
  // It ends as `part` does.
  static void follow(const std::shared_ptr<CombinedFuture>& join, c10::ivalue::Future& part) {
    part.addCallback([join](c10::ivalue::Future& done) {
      join->arrive(done.hasError() ? done.exception_ptr() : nullptr);
    });
  }

 private:
  const std::vector<at::Tensor> value_;
  const FuturePtr future_ = make_future_of_tensors();
  std::mutex mutex_;
  size_t left_;
  bool ended_ = false;
};

}  // namespace ringdist
