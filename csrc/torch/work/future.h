// Futures of Works: a Future of a list of tensors, and one that combines several.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace ringdist {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Returns a Future of a list of tensors, which is not marked.
inline FuturePtr make_future_of_tensors() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

// Marks the Future with the error or, if that is null, with `tensors`. Its callbacks run in here.
inline void mark(c10::ivalue::Future& future, const std::exception_ptr& error,
                 const std::vector<at::Tensor>& tensors) {
  if (error)
    future.setError(error);
  else
    future.markCompleted(c10::IValue(tensors));
}

// A Future of a list of tensors that is complete when all of its parts are. The first error of a
// part becomes its own, at once. Any thread.
class CombinedFuture {
 public:
  // `parts` is the number of parts; with 0 the Future is complete at once.
  CombinedFuture(std::vector<at::Tensor> value, size_t parts);

  const FuturePtr& future() const { return future_; }

  // Reports that one part has ended. Callbacks of the Future may run in here.
  void arrive(const std::exception_ptr& error);
  // Makes `join` count the end of `part`.
  static void follow(const std::shared_ptr<CombinedFuture>& join, c10::ivalue::Future& part) {
    part.addCallback([join](c10::ivalue::Future& done) {
      join->arrive(done.hasError() ? done.exception_ptr() : nullptr);
    });
  }

 private:
  const std::vector<at::Tensor> value_;
  const FuturePtr future_ = make_future_of_tensors();
  std::mutex mutex_;
  size_t left_;  // parts that have not ended
  bool ended_ = false;
};

}  // namespace ringdist
