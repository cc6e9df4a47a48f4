// The Work of a sparse allreduce: ended by the thread that does its second round.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/communicator.h"
#include "torch/interrupts.h"
#include "torch/reported_work.h"
#include "torch/work.h"

namespace ringdist {

class SparseWork final : public ReportedWork {
 public:
  SparseWork(std::shared_ptr<Communicator> group, const at::Tensor& tensor, uint64_t number)
      : ReportedWork(std::make_shared<Completion>(group->hooks(), 1), group->rank(),
                     c10d::OpType::_ALLREDUCE_SPARSE, "ringdist:sparse_all_reduce",
                     std::optional(std::vector<at::Tensor>{tensor})),
        group_(std::move(group)),
        tensor_(tensor),
        number_(number) {}

  std::vector<at::Tensor> result() override { return {tensor_}; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }
  uint64_t getSequencenumber() const override { return number_; }
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override {
    check_not_forked(*group_, "a sparse all_reduce");
    std::optional<Milliseconds> limit;
    if (timeout != kNoTimeout) limit = timeout;
    (void)wait_in_slices(limit, [this](std::optional<Milliseconds> slice) {
      std::unique_lock lock(mutex_);
      const auto ended = [this] { return completed_; };
      if (slice) return cv_.wait_for(lock, *slice, ended);
      cv_.wait(lock, ended);
      return true;
    });
    try {
      Work::wait(Milliseconds(1));  // raises what it ended with, or that it has not
    } catch (...) {
      group_->tell_failure();
      throw;
    }
    future_->wait();  // until it is marked, not until its callbacks have run
    return true;
  }
  void blockCurrentStream() override { wait(); }
  void abort() override {
    group_->abort("a sparse all_reduce was aborted by rank " + std::to_string(group_->rank()));
  }

  // Once, with what the op ended with; null: `tensor` is the result.
  void end(const std::exception_ptr& error) {
    finish(error);  // first: callbacks of the Future may wait for us, or in a barrier
    group_->handed_over(number_);
    if (error) {
      future_->setError(error);
      return;
    }
    report_success();
    future_->markCompleted(c10::IValue(std::vector<at::Tensor>{tensor_}));
  }

 private:
  const std::shared_ptr<Communicator> group_;
  const at::Tensor tensor_;
  const uint64_t number_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_ =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
};

}  // namespace ringdist
