// Which file has the kernels of a code: each defines its function for both calls. Not for others
// than kernels.cc and these files.
#pragma once

#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// Call: EncodeCall or DecodeCall.
template <typename Call>
LaunchError launch_round16(KernelCodec coding, CallSpan<Call> calls, void* stream);
template <typename Call>
LaunchError launch_quantized(KernelCodec coding, CallSpan<Call> calls, void* stream);
template <typename Call>
LaunchError launch_sign(KernelCodec coding, CallSpan<Call> calls, void* stream);
template <typename Call>
LaunchError launch_sparse(KernelCodec coding, CallSpan<Call> calls, void* stream);
template <typename Call>
LaunchError launch_lossless(KernelCodec coding, CallSpan<Call> calls, void* stream);

}  // namespace ringdist::gpu
