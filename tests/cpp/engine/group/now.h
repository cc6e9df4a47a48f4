// A fixed time for tests that stop the clock.
#pragma once

#include "base/clock.h"

namespace ringdist {

inline const TimePoint kNow = TimePoint() + std::chrono::hours(1);

}  // namespace ringdist
