// Waits that react to Ctrl-C. Python processes signals only when it is called, so a thread that
// waits has to call it now and then. Any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/clock.h"

namespace ringdist {

// Sets the function that the process' main thread calls about every 100 ms while it waits, or
// null. It may throw, which ends the wait. Set it before the first wait.
void set_interrupt_check(void (*check)());

// Sets the function that returns the name of the exception that the calling thread handles; "" if
// none.
void set_exception_check(std::string (*check)());
// Calls that function; returns "" if there is none.
std::string handled_exception();

// Called by the thread that ends the process. From then on no other thread, except those of the
// task pool, returns to Python. It would take the GIL of an interpreter that is gone, which aborts
// the process.
void keep_other_threads();

// Guard for functions that return to Python. Its destructor blocks for good if its thread must not
// return.
struct ReturnsToPython {
  ~ReturnsToPython();
};

// Calls `wait` with parts of `limit` until it returns true. Returns false if the limit has passed;
// no limit means for ever. Only the main thread, and only if there is a check, needs more than two
// parts. Exceptions of the interrupt check are passed on, and the awaited operation goes on.
bool wait_in_slices(std::optional<Milliseconds> limit,
                    const std::function<bool(std::optional<Milliseconds>)>& wait);

}  // namespace ringdist
