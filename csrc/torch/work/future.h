// The Future of a Work: of a list of tensors, marked once.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <exception>
#include <vector>

namespace ringdist {

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

inline FuturePtr make_future_of_tensors() {
  return c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
}

// Null: the Future holds `tensors`. Its callbacks run in here.
inline void mark(c10::ivalue::Future& future, const std::exception_ptr& error,
                 const std::vector<at::Tensor>& tensors) {
  if (error)
    future.setError(error);
  else
    future.markCompleted(c10::IValue(tensors));
}

}  // namespace ringdist
