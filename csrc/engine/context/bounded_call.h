// A call that may block for longer than its caller can wait, as it does where a store does not
// answer. Any thread.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "engine/context/task_pool.h"

namespace ringdist {

// The result of `call`, which runs on the pool. Errors: kTimeout, with `late`, at `until`; then the
// call goes on, whatever it refers to must live as long, and its result is dropped.
template <typename T>
Result<T> call_until(TaskPool& pool, TimePoint until, std::function<Result<T>()> call,
                     const std::string& late) {
  // The task's alone: a pool that drops the task breaks the promise.
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto answer = promise->get_future();
  const auto task = [promise = std::move(promise), call = std::move(call)] {
    promise->set_value(call());
  };
  if (Error error = pool.try_to_run(task)) return error;
  if (answer.wait_until(until) != std::future_status::ready)
    return Error(ErrorKind::kTimeout, late);
  try {
    return answer.get();
  } catch (const std::future_error&) {
    return Error(ErrorKind::kAborted, "this process has shut ringdist down");
  }
}

}  // namespace ringdist
