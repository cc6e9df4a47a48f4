#pragma once

#include "cuda/stream/staged_exchange.h"

namespace ringdist::gpu {

// Has the ranks of an op tell each other what they have called, and compares: of ops whose bytes do
// not pass through the host's, where nobody else would notice that they differ.
void add_comparison(const DeviceOp& op, int rank, int size, StagedExchange& to);

}  // namespace ringdist::gpu
