// What a caller has of an operation that it has called by name.
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

// Any thread, without the GIL.
class NamedWork {
 public:
  // What is done once it has succeeded, on the thread that asks first.
  struct OnSuccess {
    Staging staging;
    double factor = 1;                  // of the outputs
    std::optional<c10::Device> device;  // none: the CPU
  };
  // `outputs`: results; those of calls whose sizes ranks tell each other are there when it has
  // ended.
  NamedWork(std::shared_ptr<Negotiation> negotiation, std::string name,
            std::shared_ptr<Tensors> outputs, OnSuccess after);

  // Its name is free when it has ended.
  ~NamedWork();
  NamedWork(const NamedWork&) = delete;
  NamedWork& operator=(const NamedWork&) = delete;

  // It is under way: `end` is what Negotiation::call() returned.
  void begin(std::shared_ptr<Op> end) { end_ = std::move(end); }

  // Its name is free once it has ended, also if nobody asks for the result.
  void release_name() { negotiation_->release(name_, *end_); }
  // Whether it has ended, also on its device. If so its name may be used again.
  bool poll();
  // Waits for that; then the results are in place, on a device for what this thread's stream there
  // gets from now on. Throws what ended it, and what Ctrl-C throws: then it goes on.
  const Tensors& wait();

 private:
  void finish();
  void put_in_place();

  const std::shared_ptr<Negotiation> negotiation_;
  const std::string name_;
  const std::shared_ptr<Tensors> outputs_;
  const OnSuccess after_;
  std::shared_ptr<Op> end_;
  std::once_flag finished_once_;
  bool finished_ = false;
  std::optional<c10::Event>
      in_place_;              // of a device: the results are, on the stream of who settled
  std::exception_ptr error_;  // read it once settled
};

// Times the factor, in fp32 for fp16, bf16 and fp32, else in fp64, rounded to the tensor's dtype;
// integers truncate toward zero. Complex ones are multiplied in their own dtype. Outside autograd.
at::Tensor scaled_by(const at::Tensor& tensor, double factor);

}  // namespace ringdist
