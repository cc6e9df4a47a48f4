// CPU time of threads of this process, their waits for a core, and page faults, as Linux counts
// them.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace ringdist {

// Behaviour of a thread during some time. All times are in microseconds.
struct ThreadUsage {
  uint32_t elapsed = 0;  // 0: not measured
  uint32_t cpu = 0;
  uint32_t run_delay = 0;     // ready to run, without a core
  uint32_t major_faults = 0;  // pages that the whole process read from a disk
};

// Returns what the calling thread did since it last called this, together with the main thread if
// that is another one. The result is not measured at the first call, less than 5 ms after the last
// measurement, or if the system does not count. It takes about 10 us where it measures. Any thread.
ThreadUsage measure_thread_usage(TimePoint now);

// Returns for how long the calling thread has waited for a core since it started; 0 if the system
// does not count that.
Duration run_delay_of_this_thread();

}  // namespace ringdist
