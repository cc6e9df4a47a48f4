// Conversion between fp32 and blocks of small codes with a common scale (kernel/block_format.h).
// The byte layouts are in codec/<name>.spec.md. Least-squares scales are as in "projection"
// quantizers: for chosen codes t, the scale <x,t>/<t,t> minimises |x - scale * t|. This makes
// quantization a contraction.
//
// The bits are the same on every machine: sums have a fixed order, and nothing is contracted to
// FMA. Memory needs no alignment; inputs and outputs do not overlap, except for the two halves of a
// residual. No allocations; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/buffers.h"
#include "kernel/block_format.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Returns the bytes of one block (scale and codes) of 1 <= count <= kQuantizeBlock elements.
size_t quantized_block_bytes(BlockFormat format, size_t count);

// Quantizes `in` to blocks in `out`; the last block may be shorter. `out` has
// quantized_block_bytes() for each block. A residual is empty or as long as `in`. With one, the
// blocks encode in + from, and to[i] becomes in[i] + from[i] - decoded[i].
//
// If a block has a value that is not finite, it is poisoned and its residual is copied unchanged.
// Only kInt8 supports stochastic rounding; the other formats ignore `rounding`.
void quantize(BlockFormat format, std::span<const float> in, ResidualSpan residual,
              Stochastic rounding, Bytes out);

// Decodes out.size() elements, or adds them to `out`. Any bytes decode to some values. `in` has at
// least the bytes of their blocks.
void dequantize(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out);

}  // namespace ringdist
