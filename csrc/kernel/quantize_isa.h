// Implementations of quantize() and dequantize(), one per instruction set: same contract, same
// bits. quantize() and dequantize() choose among them, and tests compare them.
#pragma once

#include <span>

#include "base/buffers.h"
#include "kernel/block_format.h"
#include "kernel/residual_span.h"

namespace ringdist {

struct QuantizeLoops {
  void (*quantize)(BlockFormat format, std::span<const float> in, ResidualSpan residual,
                   Stochastic rounding, Bytes out);
  void (*dequantize)(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out);
};

const QuantizeLoops* quantize_baseline();

// These return null if this processor lacks the instructions.
const QuantizeLoops* quantize_avx2();
const QuantizeLoops* quantize_avx512();  // needs AVX-512 F, BW, DQ, VL

}  // namespace ringdist
