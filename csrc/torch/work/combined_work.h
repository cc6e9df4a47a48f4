#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "torch/work/base_work.h"

namespace ringdist {

// Several operations as one: one Work, one Future. As of one, the timeout of a wait() is that of
// all parts together.
class CombinedWork final : public BaseWork {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // `make` starts the operations; what it throws is the outcome. It runs once, in start() or when
  // somebody first asks for the outcome.
  CombinedWork(CompletionPtr completion, int rank, c10d::OpType type, std::function<Parts()> make);

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
  void abort() override;
  // The number of the last part.
  uint64_t getSequencenumber() const override;

 private:
  void await(std::optional<Milliseconds> limit) override;
  FuturePtr make_future() override;

  const Parts& parts();
  std::exception_ptr failure() const;

  std::atomic<bool> asked_{false};
  mutable std::mutex parts_mutex_;  // a leaf, but for make_
  std::function<Parts()> make_;     // null once it has run
  Parts parts_;
  std::exception_ptr failure_;  // of make_
};

// One Work for all: itself if it is the only one.
c10::intrusive_ptr<c10d::Work> join_works(CompletionPtr completion, int rank, c10d::OpType type,
                                          CombinedWork::Parts parts);

}  // namespace ringdist
