// BaseWork and its subclasses: the c10d::Work objects of this backend. They have a Future that is
// made on demand. A wait() returns when the Future is marked. Successes are reported to the group's
// hooks. Any thread. wait() and blockCurrentStream() must be called without the GIL, and no
// function needs it.
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

// Base of all Works.
class BaseWork : public c10d::Work {
 public:
#if RINGDIST_TORCH_HAS_COMPLETION_HOOKS
  uint64_t getCompletionKey() const final { return completion_->key(); }
#endif
  // Returns the ms from the call to its success, or until the present if it has not succeeded.
  float getDuration() const final { return completion_->milliseconds(); }
  // Waits for the end of the work and returns true. Throws the error that ended the work, or a
  // timeout after `timeout`; then the work goes on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) final;
  void synchronize() override {}  // a host tensor has its results when the work is complete
  void blockCurrentStream() final { wait(); }
  // Returns a Future of the value that result() returns, always the same one. Throws in a forked
  // child, unless the work has ended.
  FuturePtr getFuture() final;

 protected:
  template <typename... Args>
  explicit BaseWork(CompletionPtr completion, Args&&... args)
      : Work(std::forward<Args>(args)...), completion_(std::move(completion)) {}

  // Returns when exception() is final. Throws if `limit` has passed, or if the work cannot be
  // awaited.
  virtual void await(std::optional<Milliseconds> limit) = 0;
  // Called in a wait() before it throws the error that ended the work.
  virtual void run_failure_hooks() {}
  // Throws if the Future would never be marked.
  virtual void check_future() {}
  // Makes the Future, which must be marked at some time. Called once, with future_mutex_ held.
  virtual FuturePtr make_future() = 0;

  // Reports the success to the hooks.
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
  // Fails the whole group, on all ranks.
  void abort() final;
  uint64_t getSequencenumber() const final { return number_; }

 protected:
  GroupWork(std::shared_ptr<Communicator> group, uint64_t number, CompletionPtr completion,
            c10d::OpType type, const char* title,
            const std::optional<std::vector<at::Tensor>>& inputs);

  // Returns a description of the operation for messages.
  virtual std::string describe() const = 0;
  virtual bool ended() = 0;
  // Waits until the operation has ended. Returns false if `limit` has passed.
  virtual bool wait_until_ended(std::optional<Milliseconds> limit) = 0;

  // Also reacts to Ctrl-C. Throws kTimeout at the limit, and kAborted in a forked child.
  void await(std::optional<Milliseconds> limit) override;
  void run_failure_hooks() final { group_->run_failure_hooks(); }
  void check_future() final;

  Communicator& group() const { return *group_; }

 private:
  // Throws in a forked child, where the operation would never end.
  void check_not_forked() const;

  const std::shared_ptr<Communicator> group_;
  const uint64_t number_;
};

// Common part of the Works of an op, on the host or on a device.
class OpWork : public GroupWork {
 public:
  bool isSuccess() const final { return op_->finished() && !exception(); }
  // Returns the error that ended the op, or null.
  std::exception_ptr exception() const override;
  // For a receive, returns the rank that the data came from. If any rank may send, returns -1 until
  // a message has been matched. Throws for other ops.
  int sourceRank() const final;
  std::vector<at::Tensor> result() final { return outputs_; }

 protected:
  // The Future's value is `outputs`.
  OpWork(std::shared_ptr<Communicator> communicator, std::shared_ptr<Op> op,
         CompletionPtr completion, c10d::OpType type, const char* title,
         const std::optional<std::vector<at::Tensor>>& inputs, std::vector<at::Tensor> outputs);

  // Calls the profiler's callback. Exceptions are logged, since this may be a thread of the task
  // pool.
  void tell_profiler();

  const std::shared_ptr<Op> op_;
  const std::vector<at::Tensor> outputs_;

 private:
  std::string describe() const final { return op_->describe(); }
  bool ended() final { return op_->finished(); }
  bool wait_until_ended(std::optional<Milliseconds> limit) final;
};

}  // namespace ringdist
