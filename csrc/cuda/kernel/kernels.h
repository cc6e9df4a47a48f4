// The codecs on a device, on a stream: bytes, residuals and values of codec/*.spec.md. And what
// else is done to an op's values.
//
// All memory is the device's; `stream` is a cudaStream_t of the device that is current in the
// calling thread. A call launches one kernel, for any number of elements, none for none; many calls
// that are alike share one, some fifty at most. Of kLossless each has its own, of nothing, too:
// three to encode and two to decode, and memory in the order of the stream. The host waits for
// nothing but, at its first launch, until the kernel is loaded. Returns a cudaError_t: the
// launch's, or one that an earlier call of CUDA left in this thread. Floats and `malformed` lie at
// multiples of 4 bytes, bytes anywhere. Any thread.
#pragma once

#include "cuda/kernel/calls.h"
#include "cuda/kernel/elements.h"

namespace ringdist::gpu {

LaunchError encode(KernelCodec coding, CallSpan<EncodeCall> calls, void* stream);
inline LaunchError encode(KernelCodec coding, const EncodeCall& call, void* stream) {
  return encode(coding, CallSpan<EncodeCall>(&call, 1), stream);
}

LaunchError decode(KernelCodec coding, CallSpan<DecodeCall> calls, void* stream);
inline LaunchError decode(KernelCodec coding, const DecodeCall& call, void* stream) {
  return decode(coding, CallSpan<DecodeCall>(&call, 1), stream);
}

// is_reducible(dtype, op) (base/dtype.h).
LaunchError reduce(const ReduceCall& call, void* stream);

LaunchError run(CallSpan<Elements> calls, void* stream);

}  // namespace ringdist::gpu
