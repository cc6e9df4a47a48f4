#include "torch/work/base_work.h"

#include "torch/errors.h"

namespace ringdist {

bool BaseWork::wait(std::chrono::milliseconds timeout) {
  std::optional<Milliseconds> limit;
  if (timeout != kNoTimeout) limit = value_of(checked_timeout("wait", timeout));
  await(limit);
  if (has_future_) {
    FuturePtr future;
    {
      std::lock_guard lock(future_mutex_);
      future = future_;
    }
    future->wait();  // until it is marked, not until its callbacks have run
  }
  if (const auto error = exception()) {
    run_failure_hooks();
    std::rethrow_exception(error);
  }
  return true;
}

FuturePtr BaseWork::getFuture() {
  check_future();
  std::lock_guard lock(future_mutex_);
  if (!future_) {
    future_ = make_future();
    has_future_ = true;
  }
  return future_;
}

}  // namespace ringdist
