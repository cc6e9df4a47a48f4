// Functions of the codec families. Each .cu file defines one of them, for both kinds of call. Only
// kernels.cc and these files may use this header. The code must be of the family; another one runs
// as some codec of the family.
#pragma once

#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

// `Call` is EncodeCall or DecodeCall.
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
