#pragma once

#include <functional>

#include "support/membership/scenario.h"

namespace ringdist::membership {

// Minimizes a failing scenario. Removes faults, members, jitter and the store's process one at a
// time, as long as `fails` still returns true.
Scenario shorten(Scenario scenario, const std::function<bool(const Scenario&)>& fails);

}  // namespace ringdist::membership
