// Ctrl-C while a thread waits for an operation: Python hears of signals only when it is asked to.
#pragma once

#include <functional>
#include <optional>

#include "base/clock.h"

namespace ringdist {

// What the process's main thread calls about every 100 ms while it waits, without the GIL; null:
// nothing. It may throw, which ends the wait. Set it before the first wait.
void set_interrupt_check(void (*check)());

// Calls `wait` with parts of `limit` (none: for ever) until it is true, or until the limit has
// passed: false then. Throws what the interrupt check throws; what is waited for goes on.
bool wait_in_slices(std::optional<Milliseconds> limit,
                    const std::function<bool(std::optional<Milliseconds>)>& wait);

}  // namespace ringdist
