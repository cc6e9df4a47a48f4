// Ctrl-C while a thread waits for an operation: Python hears of signals only when it is asked to.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"

namespace ringdist {

// What the process's main thread calls about every 100 ms while it waits, without the GIL; null:
// nothing. It may throw, which ends the wait. Set it before the first wait.
void set_interrupt_check(void (*check)());

// The same, for the name of the exception that the calling thread handles; "": none.
void set_exception_check(std::string (*check)());
std::string handled_exception();

// The process ends, by this thread: no other one but the task pool's returns to Python from now on.
// It would take the GIL of an interpreter that is gone, which aborts the process.
void keep_other_threads();

// At its end a thread that must not return to Python sleeps for good.
struct ReturnsToPython {
  ~ReturnsToPython();
};

// Calls `wait` with parts of `limit` (none: for ever) until it is true, or until the limit has
// passed: false then. Throws what the interrupt check throws; what is waited for goes on.
bool wait_in_slices(std::optional<Milliseconds> limit,
                    const std::function<bool(std::optional<Milliseconds>)>& wait);

}  // namespace ringdist
