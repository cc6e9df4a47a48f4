// CombinedWork: several operations with one Work and one Future. Any thread.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <mutex>
#include <vector>

#include "torch/work/base_work.h"

namespace ringdist {

// Represents several operations as one. The timeout of a wait() applies to all parts together.
class CombinedWork final : public BaseWork {
 public:
  using Parts = std::vector<c10::intrusive_ptr<c10d::Work>>;

  // `make` starts the operations; an exception of it becomes the outcome. It runs once, in start(),
  // in abort() or at the first query for the outcome.
  CombinedWork(CompletionPtr completion, int rank, c10d::OpType type, std::function<Parts()> make);

  // Starts the operations. Throws the exception that prevented this.
  void start();

  // Starts the operations, except at the first call. PyTorch's flight recorder queries each Work
  // once, which must not end a coalescing region.
  bool isCompleted() override;
  bool isSuccess() const override;
  std::exception_ptr exception() const override;
  int sourceRank() const override;
  // Returns the results of all parts, in order. Starts the operations.
  std::vector<at::Tensor> result() override;
  // Aborts all parts. Starts the operations first if they have not been started.
  void abort() override;
  // Returns the number of the last part, or 0 until the operations have been started.
  uint64_t getSequencenumber() const override;

 private:
  void await(std::optional<Milliseconds> limit) override;
  FuturePtr make_future() override;

  // Starts the operations unless they have been started, and returns their Works.
  const Parts& parts();
  // Returns the exception of make_, or null.
  std::exception_ptr failure() const;

  std::atomic<bool> asked_{false};  // isCompleted() has been called
  mutable std::mutex parts_mutex_;  // held while make_ runs, and while parts are queried
  std::function<Parts()> make_;     // null after it has run
  Parts parts_;
  std::exception_ptr failure_;  // exception of make_
};

// Returns one Work for all parts, which have been started. A single part is returned itself, so its
// type and Completion stay its own.
c10::intrusive_ptr<c10d::Work> join_works(CompletionPtr completion, int rank, c10d::OpType type,
                                          CombinedWork::Parts parts);

}  // namespace ringdist
