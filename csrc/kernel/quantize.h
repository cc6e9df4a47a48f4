// fp32 <-> blocks of small codes with a common scale (kernel/block_format.h). codec/<name>.spec.md
// has the bytes. Least-squares scales as in "projection" quantizers: for chosen codes t, the scale
// <x,t>/<t,t> minimises |x - scale * t|, so that quantizing is a contraction.
//
// Same bits on every machine: sums have a fixed order, nothing is contracted to FMA. Memory needs
// no alignment; inputs and outputs do not overlap. Allocates nothing; any thread.
#pragma once

#include <cstddef>
#include <span>

#include "base/buffers.h"
#include "kernel/block_format.h"
#include "kernel/residual_span.h"

namespace ringdist {

// Bytes of one block of 1 <= count <= kQuantizeBlock elements: scale and codes.
size_t quantized_block_bytes(BlockFormat format, size_t count);

// Writes the blocks of `in`, the last one as short as the rest, to `out`. With a residual (as long
// as `in`, or empty) the blocks are those of in + from, and to[i] becomes in[i] + from[i] -
// decoded[i]; a block with a value that is not finite is poisoned and owes what it owed. Stochastic
// rounding is kInt8's only.
void quantize(BlockFormat format, std::span<const float> in, ResidualSpan residual,
              Stochastic rounding, Bytes out);

// Decodes out.size() elements, or adds them to `out`. Any bytes give values.
void dequantize(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out);

}  // namespace ringdist
