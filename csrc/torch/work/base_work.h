// What all our Works share: a Future that is made on demand, a wait() that lasts until it is
// marked, and success that is reported to the group's hooks. Any thread; the GIL is not needed and
// must not be held in wait().
#pragma once

#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "engine/communicator.h"
#include "engine/hooks.h"
#include "torch/base/features.h"
#include "torch/work/future.h"

namespace ringdist {

class BaseWork : public c10d::Work {
 public:
#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const final { return completion_->key(); }
#endif
  // In milliseconds; while it is open, until now.
  float getDuration() const final { return completion_->milliseconds(); }
  // Returns true, or throws: what ended the work, or that `timeout` passed (the work then goes on).
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) final;
  void synchronize() override {}  // results of host tensors are there when the work is complete
  void blockCurrentStream() final { wait(); }
  // Of what result() returns.
  FuturePtr getFuture() final;

 protected:
  template <typename... Args>
  explicit BaseWork(CompletionPtr completion, Args&&... args)
      : Work(std::forward<Args>(args)...), completion_(std::move(completion)) {}

  // Returns when exception() is known, and throws that `limit` has passed, or why nobody can wait.
  virtual void await(std::optional<Milliseconds> limit) = 0;
  // Called in the wait() that throws what ended the work.
  virtual void run_failure_hooks() {}
  // Throws if the Future would never be marked.
  virtual void check_future() {}
  // Called once, with future_mutex_ held: who has the Future has it marked some time.
  virtual FuturePtr make_future() = 0;

  void report_success() { completion_->arrive(); }

 private:
  const CompletionPtr completion_;
  std::atomic<bool> has_future_{false};
  std::mutex future_mutex_;  // not held while waiting
  FuturePtr future_;
};

// The Work of one operation of one group.
class GroupWork : public BaseWork {
 public:
  // Ends the whole group, on all ranks.
  void abort() final;
  uint64_t getSequencenumber() const final { return number_; }

 protected:
  GroupWork(std::shared_ptr<Communicator> group, uint64_t number, CompletionPtr completion,
            c10d::OpType type, const char* title,
            const std::optional<std::vector<at::Tensor>>& inputs);

  // For messages: which operation this is.
  virtual std::string describe() const = 0;
  virtual bool ended() = 0;
  // Waits until it has ended; false: `limit` has passed.
  virtual bool wait_until_ended(std::optional<Milliseconds> limit) = 0;

  // Hears of Ctrl-C.
  void await(std::optional<Milliseconds> limit) override;
  void run_failure_hooks() final { group_->run_failure_hooks(); }
  void check_future() final;

  Communicator& group() const { return *group_; }

 private:
  // In a process that was forked from the one that runs the operation, nothing ever ends it.
  void check_not_forked() const;

  const std::shared_ptr<Communicator> group_;
  const uint64_t number_;
};

// What Works of an op share, wherever that runs.
class OpWork : public GroupWork {
 public:
  bool isSuccess() const final { return op_->finished() && !exception(); }
  // What ended the op.
  std::exception_ptr exception() const override;
  // Of a receive: the rank that the data came from; -1 while that is open.
  int sourceRank() const final;
  std::vector<at::Tensor> result() final { return outputs_; }

 protected:
  // `outputs` is what the Future resolves to.
  OpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
         CompletionPtr completion, c10d::OpType type, const char* title,
         const std::optional<std::vector<at::Tensor>>& inputs, std::vector<at::Tensor> outputs);

  // What it throws is logged: this may be a thread of ours.
  void tell_profiler();

  const std::shared_ptr<Op> op_;
  const std::vector<at::Tensor> outputs_;

 private:
  std::string describe() const final { return op_->describe(); }
  bool ended() final { return op_->finished(); }
  bool wait_until_ended(std::optional<Milliseconds> limit) final;
};

}  // namespace ringdist
