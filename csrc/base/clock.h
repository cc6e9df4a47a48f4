// Monotonic time. One alias, so that a virtual clock has one place to go.
#pragma once

#include <chrono>

namespace ringdist {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
using Milliseconds = std::chrono::milliseconds;

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

}  // namespace ringdist
