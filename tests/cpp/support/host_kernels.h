// The device kernels (csrc/cuda/kernel/kernels.h) executed on the host. They use the same bodies
// as the device.
#pragma once

#include "cuda/kernel/calls.h"
#include "cuda/kernel/elements.h"

namespace ringdist::host_kernels {

void encode(gpu::KernelCodec coding, gpu::CallSpan<gpu::EncodeCall> calls);
void decode(gpu::KernelCodec coding, gpu::CallSpan<gpu::DecodeCall> calls);
void reduce(const gpu::ReduceCall& call);
void run(gpu::CallSpan<gpu::Elements> calls);
inline void run(const gpu::Elements& call) { run(gpu::CallSpan<gpu::Elements>(&call, 1)); }

}  // namespace ringdist::host_kernels
