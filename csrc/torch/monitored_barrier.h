#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "engine/communicator.h"

namespace ringdist {

// A barrier that throws who did not come: the lowest such rank, or all of them. That ends the
// group.
void monitored_barrier(Communicator& group, const c10d::BarrierOptions& opts, bool all_ranks);

}  // namespace ringdist
