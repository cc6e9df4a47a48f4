#pragma once

#include "cuda/stream/host_link.h"

namespace ringdist::gpu {

// Has the ranks of an op tell each other, on the host and beside the stream, what they have called:
// where they disagree `staging.failed` is told. Of ops whose bytes do not pass through the host's.
// Waits for nothing.
Error compare_calls(const DeviceOp& op, const Staging& staging, Stream stream);

}  // namespace ringdist::gpu
