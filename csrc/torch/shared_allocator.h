// Memory of tensors that the other ranks of the host may read where it lies: what a thread
// allocates while it asks for that. Otherwise, and for small tensors, torch's own allocator.
#pragma once

#include <cstddef>

namespace ringdist {

// Smaller ones are copied sooner than mapped.
inline constexpr size_t kLeastShared = size_t{64} << 10;

// Of the calling thread; each begin_sharing() needs an end_sharing(). The first in the process puts
// our allocator before torch's, for good.
void begin_sharing();
void end_sharing();

}  // namespace ringdist
