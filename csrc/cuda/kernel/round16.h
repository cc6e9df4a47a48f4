// kernel/round16.h on a device, on a stream: the same bytes. As cuda/kernel/quantize.h.
#pragma once

#include <cstdint>

#include "cuda/kernel/launch.h"
#include "kernel/block_format.h"

namespace ringdist::gpu {

enum class Type16 : uint8_t { kHalf, kBFloat };

// Rounds `count` elements of `in`, or of in + from where that is not null; to[i] becomes what was
// lost. Stochastic rounding is kBFloat's only.
LaunchError round16(Type16 type, const float* in, const float* from, float* to, int64_t count,
                    Stochastic rounding, uint16_t* out, void* stream);

// Decodes `count` elements, or adds them to `out`.
LaunchError widen16(Type16 type, const uint16_t* in, bool accumulate, float* out, int64_t count,
                    void* stream);

}  // namespace ringdist::gpu
