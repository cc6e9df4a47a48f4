// Several operations as one: one Future, one Work.
#pragma once

#include <ATen/core/ivalue.h>

#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "torch/reported_work.h"

namespace ringdist {

// A Future of a list of tensors that is complete when all of its parts are; the first error is its
// own. Any thread.
class FutureJoin {
 public:
  // No parts: complete at once.
  FutureJoin(std::vector<at::Tensor> value, size_t parts);

  const c10::intrusive_ptr<c10::ivalue::Future>& future() const { return future_; }

  // One part has ended. Callbacks of the Future may run in here.
  void arrive(const std::exception_ptr& error);

 private:
  const std::vector<at::Tensor> value_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
  std::mutex mutex_;
  size_t left_;
  bool ended_ = false;
};

// Any thread.
class JoinedWork final : public ReportedWork {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // `make` starts the operations; what it throws is the outcome. It runs once, in start() or when
  // somebody first asks for the outcome.
  JoinedWork(CompletionPtr completion, int rank, c10d::OpType type, std::function<Parts()> make);

  // Starts the operations; throws what hindered that.
  void start();

  // The first question does not start anything: PyTorch's flight recorder asks each Work once,
  // which must not end a coalescing region.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  // The results of all parts, in order.
  std::vector<at::Tensor> result() override;
  void synchronize() override;
  // As of one Work: the timeout is that of all parts together.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void blockCurrentStream() override;
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  // The number of the last part.
  uint64_t getSequencenumber() const override;

 private:
  const Parts& parts();
  std::exception_ptr failure() const;

  std::atomic<bool> asked_{false};
  mutable std::mutex parts_mutex_;  // a leaf, but for make_
  std::function<Parts()> make_;     // null once it has run
  Parts parts_;
  std::exception_ptr failure_;  // of make_
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // made on demand
};

// One Work for all: itself if it is the only one.
c10::intrusive_ptr<c10d::Work> join_works(CompletionPtr completion, int rank, c10d::OpType type,
                                          JoinedWork::Parts parts);

}  // namespace ringdist
