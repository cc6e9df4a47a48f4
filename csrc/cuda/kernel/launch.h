// How a launch of a kernel went: a cudaError_t, 0 where it was taken.
#pragma once

namespace ringdist::gpu {

using LaunchError = int;

}  // namespace ringdist::gpu
