// Which file has the kernels of a code. Not for others than kernels.cc and these files.
#pragma once

#include "cuda/kernel/calls.h"

namespace ringdist::gpu {

LaunchError launch_round16(Coding coding, const EncodeCall& call, void* stream);
LaunchError launch_round16(Coding coding, const DecodeCall& call, void* stream);
LaunchError launch_quantized(Coding coding, const EncodeCall& call, void* stream);
LaunchError launch_quantized(Coding coding, const DecodeCall& call, void* stream);
LaunchError launch_sign(Coding coding, const EncodeCall& call, void* stream);
LaunchError launch_sign(Coding coding, const DecodeCall& call, void* stream);
LaunchError launch_sparse(Coding coding, const EncodeCall& call, void* stream);
LaunchError launch_sparse(Coding coding, const DecodeCall& call, void* stream);

}  // namespace ringdist::gpu
