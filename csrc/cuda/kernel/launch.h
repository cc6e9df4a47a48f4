// Chooses and launches the kernels of one Coder. Each family of codecs compiles its own. nvcc only.
#pragma once

#include "cuda/kernel/blocks.h"
#include "cuda/kernel/calls.h"
#include "cuda/kernel/wide_blocks.h"

namespace ringdist::gpu {

// Both queue the kernels of all calls on `stream` and return without waiting for them. They return
// the first error of a launch, after they have tried all. The memory that the calls name must live
// until the kernels have run; the span itself may end with the call.
template <bool kRotated, typename Coder, typename Call>
LaunchError launch(Coder coder, CallSpan<Call> calls, void* stream) {
  return with_bodies<kRotated>(coder, calls,
                               [&](const auto& body) { return for_each_batch(stream, body); });
}

template <typename Coder, typename Call>
LaunchError launch(KernelCodec coding, Coder coder, CallSpan<Call> calls, void* stream) {
  return coding.rotated ? launch<true>(coder, calls, stream) : launch<false>(coder, calls, stream);
}

}  // namespace ringdist::gpu
