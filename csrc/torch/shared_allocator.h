// Allocator for tensors in memory that other ranks of the host can map and read in place. It serves
// large tensors that a thread allocates between begin_sharing() and end_sharing(). All others come
// from torch's own allocator.
#pragma once

#include <cstddef>

namespace ringdist {

// Smaller tensors are faster to copy than to map.
inline constexpr size_t kLeastShared = size_t{64} << 10;

// Begin and end sharing on the calling thread; each begin_sharing() needs an end_sharing(). The
// first call in the process puts this allocator in front of torch's, for good. Within a region, an
// allocation throws DistBackendError if the machine lacks shared memory.
void begin_sharing();
void end_sharing();

}  // namespace ringdist
