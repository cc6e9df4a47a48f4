// Codecs on a device, with the bytes, residuals and values of codec/*.spec.md, and other kernels
// for the values of an op.
//
// All memory is on the device. `stream` is a cudaStream_t of the device that is current in the
// calling thread.
//
// A call launches one kernel for any number of elements, and none for 0 elements. Up to about fifty
// similar calls share a launch. Each kLossless call has launches of its own, even for 0 elements:
// three to encode and two to decode. It also allocates memory in the order of the stream.
//
// The host does not wait, except at the first launch until the kernel is loaded. Returns a
// cudaError_t, which is that of the launch or of an earlier call of CUDA in this thread. Floats and
// `malformed` must be aligned to 4 bytes; encoded bytes need no alignment. Any thread.
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

// Requires is_reducible(dtype, op) (base/dtype.h).
LaunchError reduce(const ReduceCall& call, void* stream);

// Runs operations on elements (cuda/kernel/elements.h).
LaunchError run(CallSpan<Elements> calls, void* stream);

}  // namespace ringdist::gpu
