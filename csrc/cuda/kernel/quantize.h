// kernel/quantize.h on a device, on a stream: the same bytes.
//
// All memory is the device's; `stream` is a cudaStream_t. Each call launches one kernel and
// returns; nothing waits for it. Needs no alignment but the floats' own. Any thread.
#pragma once

#include <cstdint>

#include "cuda/kernel/launch.h"
#include "kernel/block_format.h"

namespace ringdist::gpu {

// Writes the blocks of the `count` elements of `in` to `out`. Where `from` is not null, those of in
// + from, and to[i] becomes what was lost; to may be from.
LaunchError quantize(BlockFormat format, const float* in, const float* from, float* to,
                     int64_t count, Stochastic rounding, uint8_t* out, void* stream);

// Decodes `count` elements, or adds them to `out`. Any bytes give values.
LaunchError dequantize(BlockFormat format, const uint8_t* in, bool accumulate, float* out,
                       int64_t count, void* stream);

}  // namespace ringdist::gpu
