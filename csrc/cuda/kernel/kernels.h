// The codecs on a device, on a stream: bytes, residuals and values of codec/*.spec.md.
//
// All memory is the device's; `stream` is a cudaStream_t. A call launches one kernel, for any
// number of elements, and returns what the launch gave, a cudaError_t; nothing waits for it. Floats
// lie at multiples of 4 bytes, all else anywhere. Any thread.
#pragma once

#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

LaunchError encode(Coding coding, const EncodeCall& call, void* stream);

LaunchError decode(Coding coding, const DecodeCall& call, void* stream);

}  // namespace ringdist::gpu
