#include "engine/context/task_pool.h"

#include <pthread.h>

#include <thread>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/scoped_float_mode.h"

namespace ringdist {
namespace {

constexpr auto kIdleTime = std::chrono::seconds(1);  // after which an idle thread ends

thread_local bool is_in_pool = false;

// Runs a task, frees it, and logs an exception, which has no caller to go to.
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void run_one(std::function<void()> task) {
  const ScopedFloatMode mode;  // for each task, because an earlier one may have changed it
  try {
    task();
  } catch (...) {
    log(LogLevel::kWarn, "a task ended with " + current_exception_error().message());
  }
}

}  // namespace

bool TaskPool::runs_here() { return is_in_pool; }

TaskPool::TaskPool() {
  pthread_sigmask(SIG_SETMASK, nullptr, &state_->signals);
  state_->cpus = CpuSet::of(pthread_self());
}

Error TaskPool::try_to_run(std::function<void()> task) {
  try {
    (void)run(std::move(task));
    return {};
  } catch (...) {
    return current_exception_error();
  }
}

// If no thread can be started, the task waits for one of the others. Only if there is none, the
// task is dropped and the exception is passed on.
bool TaskPool::add(Task task) {
  uint64_t number = 0;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping) return false;
    number = state_->next++;
    const bool calls_back = task.calls_back;
    state_->tasks.emplace(number, std::move(task));
    state_->callbacks += calls_back;
    // A thread that was notified counts as idle until it has the mutex, and its task as queued. So
    // the comparison is with the number of tasks, not with zero.
    if (state_->idle >= static_cast<int>(state_->tasks.size())) {
      state_->wake.notify_one();
      return true;
    }
    ++state_->threads;
  }
  try {
    std::thread(&TaskPool::work, state_).detach();  // detached: stop() waits for it by its count
  } catch (...) {
    const Error error = current_exception_error();
    {
      std::lock_guard lock(state_->mutex);
      if (--state_->threads == 0)
        if (const auto dropped = state_->tasks.extract(number)) {
          state_->callbacks -= dropped.mapped().calls_back;
          throw;
        }
      if (std::exchange(state_->warned, true)) return true;
    }
    log(LogLevel::kWarn, "no thread for a task, which waits for others: " + error.message());
  }
  return true;
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): the thread's own reference
void TaskPool::work(std::shared_ptr<State> state) {
  is_in_pool = true;
  pthread_setname_np(pthread_self(), "ringdist-task");
  pthread_sigmask(SIG_SETMASK, &state->signals, nullptr);
  if (!state->cpus.empty()) (void)state->cpus.bind(pthread_self());
  std::unique_lock lock(state->mutex);
  for (;;) {
    while (!state->tasks.empty()) {
      auto task = std::move(state->tasks.extract(state->tasks.begin()).mapped());
      lock.unlock();
      run_one(std::move(task.run));
      lock.lock();
      if (task.calls_back && --state->callbacks == 0) state->ended.notify_all();
    }
    if (state->stopping) break;
    ++state->idle;
    state->wake.wait_for(lock, kIdleTime);
    --state->idle;
    // The last thread stays: later the system may not grant another one.
    if (state->tasks.empty() && state->threads > 1) break;
  }
  --state->threads;
  state->ended.notify_all();
}

bool TaskPool::stop(TimePoint deadline) {
  if (mark_.forked()) return true;  // the threads belong to the parent
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->wake.notify_all();
  return state_->ended.wait_until(lock, deadline, [&] { return state_->threads == 0; });
}

bool TaskPool::await_callbacks(TimePoint deadline) {
  if (mark_.forked()) return true;
  std::unique_lock lock(state_->mutex);
  return state_->ended.wait_until(lock, deadline, [&] { return state_->callbacks == 0; });
}

}  // namespace ringdist
