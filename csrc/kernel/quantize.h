// fp32 <-> blocks of small codes with a common scale (kernel/block_scale.h). codec/<name>.spec.md
// has the bytes. Least-squares scales as in "projection" quantizers: for chosen codes t, the scale
// <x,t>/<t,t> minimises |x - scale * t|, so that quantizing is a contraction.
//
// Same bits on every machine: sums have a fixed order, nothing is contracted to FMA. Memory needs
// no alignment; inputs and outputs do not overlap. Allocates nothing; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "kernel/residual_span.h"

namespace ringdist {

enum class BlockFormat : uint8_t { kFp8E4M3, kFp8E5M2, kInt8, kInt4, kInt2 };

inline constexpr size_t kQuantizeBlock = 128;

// Bytes of one block of 1 <= count <= kQuantizeBlock elements: scale and codes.
size_t quantized_block_bytes(BlockFormat format, size_t count);

// Rounding that goes up with the probability of the fraction; kInt8 only. The random bits of
// element i are a hash of (key, i): the same key repeats them.
struct Stochastic {
  bool on = false;
  uint64_t key = 0;
};

// Writes the blocks of `in`, the last one as short as the rest, to `out`. With a residual (as long
// as `in`, or empty) the blocks are those of in + from, and to[i] becomes in[i] + from[i] -
// decoded[i]; a block with a value that is not finite is poisoned and owes what it owed.
void quantize(BlockFormat format, std::span<const float> in, ResidualSpan residual,
              Stochastic rounding, Bytes out);

// Decodes out.size() elements, or adds them to `out`. Any bytes give values.
void dequantize(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out);

}  // namespace ringdist
