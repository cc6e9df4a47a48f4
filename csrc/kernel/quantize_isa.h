// The loops of quantize() and dequantize() for one instruction set each: same contract, same bits.
// For them to choose from, and for tests to compare.
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

// Null where this processor cannot run them.
const QuantizeLoops* quantize_avx2();
const QuantizeLoops* quantize_avx512();  // F, BW, DQ, VL

}  // namespace ringdist
