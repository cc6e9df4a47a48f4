#pragma once

#include <functional>

#include "support/membership/scenario.h"

namespace ringdist::membership {

// The shortest run that is found by leaving out faults, members' jitter and the store's process,
// one at a time, as long as it still fails.
Scenario shorten(Scenario scenario, const std::function<bool(const Scenario&)>& fails);

}  // namespace ringdist::membership
