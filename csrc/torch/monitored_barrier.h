// monitored_barrier(): the barrier of torch.distributed.monitored_barrier().
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "engine/communicator.h"

namespace ringdist {

// Runs a barrier and waits for it. If ranks are missing at the timeout, throws an error with the
// lowest of them, or with all of them if `all_ranks` is set, and the group fails. A timeout of 0
// throws at once and starts nothing. Call it without the GIL; Ctrl-C interrupts the wait.
void monitored_barrier(Communicator& group, const c10d::BarrierOptions& opts, bool all_ranks);

}  // namespace ringdist
