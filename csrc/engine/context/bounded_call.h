// call_until(): calls a function that may block for longer than its caller can wait, for example
// because a store does not answer. Any thread.
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

// Runs `call` on the pool and returns its result. If it has not returned at `until`, fails with
// kTimeout and the text `late`. The call then goes on and its result is dropped, so everything it
// refers to must live as long. Fails with what TaskPool::try_to_run() returns if no thread can be
// started. `call` must not throw. Do not call it with a lock that `call` needs.
template <typename T>
Result<T> call_until(TaskPool& pool, TimePoint until, std::function<Result<T>()> call,
                     const std::string& late) {
  // Only the task holds the promise. If the pool drops the task, the future gets an error.
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
