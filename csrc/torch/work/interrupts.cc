#include "torch/work/interrupts.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>

namespace ringdist {
namespace {

constexpr Milliseconds kSlice{100};

std::atomic<void (*)()> interrupt_check{nullptr};

bool is_main_thread() { return gettid() == getpid(); }

}  // namespace

void set_interrupt_check(void (*check)()) { interrupt_check = check; }

bool wait_in_slices(std::optional<Milliseconds> limit,
                    const std::function<bool(std::optional<Milliseconds>)>& wait) {
  const auto check = interrupt_check.load();
  if (check == nullptr) return wait(limit);
  const TimePoint deadline = deadline_after(limit);
  // The first one for all threads: asking which we are would cost short waits a system call.
  if (wait(limit ? std::min(*limit, kSlice) : kSlice)) return true;
  while (Clock::now() < deadline) {
    std::optional<Milliseconds> left;
    if (limit) left = std::chrono::ceil<Milliseconds>(deadline - Clock::now());
    if (!is_main_thread()) return wait(left);
    check();
    if (wait(left ? std::min(*left, kSlice) : kSlice)) return true;
  }
  return false;
}

}  // namespace ringdist
