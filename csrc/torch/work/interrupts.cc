#include "torch/work/interrupts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "engine/context/task_pool.h"

namespace ringdist {
namespace {

constexpr Milliseconds kSlice{100};

std::atomic<void (*)()> interrupt_check{nullptr};

std::atomic<std::string (*)()> exception_check{nullptr};

std::atomic<pid_t> last_thread{0};
std::atomic<pid_t> last_process{0};

bool is_main_thread() { return gettid() == getpid(); }

}  // namespace

void set_interrupt_check(void (*check)()) { interrupt_check = check; }

void keep_other_threads() {
  last_thread = gettid();
  last_process = getpid();
}

ReturnsToPython::~ReturnsToPython() {
  // A forked child has its own interpreter, which goes on.
  if (last_process == 0 || last_process != getpid()) return;
  if (last_thread == gettid() || TaskPool::runs_here()) return;
  for (;;) pause();
}

void set_exception_check(std::string (*check)()) { exception_check = check; }

std::string handled_exception() {
  const auto check = exception_check.load();
  return check == nullptr ? "" : check();
}

bool wait_in_slices(std::optional<Milliseconds> limit,
                    const std::function<bool(std::optional<Milliseconds>)>& wait) {
  const ReturnsToPython gate;
  const auto check = interrupt_check.load();
  if (check == nullptr) return wait(limit);
  const TimePoint deadline = deadline_after(limit);
  // The first slice is the same for all threads: a check for the main thread needs a system call,
  // which short waits should not pay for.
  if (wait(limit ? std::min(*limit, kSlice) : kSlice)) return true;
  while (Clock::now() < deadline) {
    std::optional<Milliseconds> left;
    if (limit) left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    // Python runs signal handlers in the main thread only, so other threads need no further slices.
    if (!is_main_thread()) return wait(left);
    check();
    if (wait(left ? std::min(*left, kSlice) : kSlice)) return true;
  }
  return false;
}

}  // namespace ringdist
