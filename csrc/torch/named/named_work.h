// NamedWork: the caller's handle of an operation that was called by name.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "negotiation/negotiation.h"
#include "torch/ops/call.h"

namespace ringdist {

// Waits for the operation and puts its results in place. Any thread, without the GIL.
class NamedWork {
 public:
  // Work to do after a success, on the first thread that queries the result.
  struct OnSuccess {
    Staging staging;
    double factor = 1;                  // to multiply the outputs by
    std::optional<c10::Device> device;  // none: the CPU
  };
  // `outputs` are the results. If their sizes depend on other ranks, they exist when the operation
  // has ended.
  NamedWork(std::shared_ptr<Negotiation> negotiation, std::string name,
            std::shared_ptr<Tensors> outputs, OnSuccess after);

  // If no result was queried, the name becomes free when the operation has ended.
  ~NamedWork();
  NamedWork(const NamedWork&) = delete;
  NamedWork& operator=(const NamedWork&) = delete;

  // Sets the op that ends with the operation: the result of Negotiation::call(). Comes before all
  // functions below.
  void begin(std::shared_ptr<Op> end) { end_ = std::move(end); }

  // Frees the name as soon as the operation has ended, also if no result is queried.
  void release_name() { negotiation_->release(name_, *end_); }
  // Returns true if the operation has ended, also on its device. Then the name may be used again.
  // An error of the operation is thrown by wait() only.
  bool poll();
  // Waits for the end and returns the results. On a device, later work of this thread's current
  // stream finds them in place. Throws the error of the operation. Throws on Ctrl-C; then the
  // operation goes on.
  const Tensors& wait();

 private:
  // Puts the results in place, once, and frees the name.
  void finish();
  // Copies and scales results.
  void put_in_place();

  const std::shared_ptr<Negotiation> negotiation_;
  const std::string name_;
  const std::shared_ptr<Tensors> outputs_;
  const OnSuccess after_;
  std::shared_ptr<Op> end_;
  std::once_flag finished_once_;
  bool finished_ = false;
  // Recorded on the device stream that put the results in place.
  std::optional<c10::Event> in_place_;
  std::exception_ptr error_;  // valid after finish()
};

// Returns tensor * factor. Computes in fp32 for fp16, bf16 and fp32, else in fp64, and rounds to
// the tensor's dtype. Integers are truncated toward zero. Complex tensors are multiplied in their
// own dtype. Outside autograd.
at::Tensor scaled_by(const at::Tensor& tensor, double factor);

}  // namespace ringdist
