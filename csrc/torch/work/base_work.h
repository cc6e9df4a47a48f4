// What all our Works share: a Future that is made on demand, a wait() that lasts until it is
// marked, and success that is reported to the group's hooks. Any thread; the GIL is not needed and
// must not be held in wait().
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <utility>

#include "base/clock.h"
#include "engine/hooks.h"
#include "torch/features.h"
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

}  // namespace ringdist
