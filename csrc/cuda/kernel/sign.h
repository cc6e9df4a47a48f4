// Codec `onebit` on a device, on a stream: the bytes of codec/onebit.cc. As cuda/kernel/quantize.h.
#pragma once

#include <cstdint>

#include "cuda/kernel/launch.h"

namespace ringdist::gpu {

// Writes the blocks of the `count` elements of `in` to `out`; where `from` is not null, those of in
// + from, and to[i] becomes what was lost.
LaunchError take_signs(const float* in, const float* from, float* to, int64_t count, uint8_t* out,
                       void* stream);

// Decodes `count` elements, or adds them to `out`. A block that no encoder writes sets *malformed,
// an int of the device, to 1, and is left out.
LaunchError read_signs(const uint8_t* in, bool accumulate, float* out, int64_t count,
                       int* malformed, void* stream);

}  // namespace ringdist::gpu
