// The devices' kernels (csrc/cuda/kernel/kernels.h) run on the host, by the same bodies.
#pragma once

#include "cuda/kernel/calls.h"
#include "cuda/kernel/elements.h"

namespace ringdist::host_kernels {

void encode(gpu::Coding coding, const gpu::EncodeCall& call);
void decode(gpu::Coding coding, const gpu::DecodeCall& call);
void reduce(const gpu::ReduceCall& call);
void run(const gpu::Elements& call);

}  // namespace ringdist::host_kernels
