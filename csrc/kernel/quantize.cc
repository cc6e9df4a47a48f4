#include "kernel/quantize.h"

#include <algorithm>

#include "kernel/quantize_isa.h"
#include "kernel/quantize_loops.h"

namespace ringdist {
namespace quantization {

uint16_t quantize_rare(Block& block, int bits) {
  const bool finite = block.largest < 0x7f800000;
  if (block.largest == 0 || !finite) {
    std::fill_n(block.t, kBlock, 0.0f);
    std::fill_n(block.code, kBlock, uint8_t{0});
    return finite ? 0 : kPoisonScale;
  }
  const uint16_t scale = tiny_scale(block.largest, bits);
  for (size_t i = 0; i < kBlock; ++i) {
    const int t = tiny_code(block.x[i], scale);
    block.t[i] = static_cast<float>(t);
    block.code[i] = static_cast<uint8_t>(t);
  }
  return scale;
}

}  // namespace quantization

namespace {

template <typename Format>
[[gnu::noinline]] void run_quantize(std::span<const float> in, ResidualSpan residual,
                                    Stochastic rounding, Bytes out) {
  quantization::quantize_either<Format>(in, residual, rounding, out);
}

template <typename Format>
[[gnu::noinline]] void run_dequantize(ConstBytes in, bool accumulate, std::span<float> out) {
  quantization::dequantize_either<Format>(in, accumulate, out);
}

void baseline_quantize(BlockFormat format, std::span<const float> in, ResidualSpan residual,
                       Stochastic rounding, Bytes out) {
  quantization::with_format<4>(
      format, [&]<typename Format>(Format) { run_quantize<Format>(in, residual, rounding, out); });
}

void baseline_dequantize(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out) {
  quantization::with_format<4>(
      format, [&]<typename Format>(Format) { run_dequantize<Format>(in, accumulate, out); });
}

const QuantizeLoops& best() {
  static const QuantizeLoops* loops = quantize_avx512() != nullptr ? quantize_avx512()
                                      : quantize_avx2() != nullptr ? quantize_avx2()
                                                                   : quantize_baseline();
  return *loops;
}

}  // namespace

const QuantizeLoops* quantize_baseline() {
  static constexpr QuantizeLoops kLoops{baseline_quantize, baseline_dequantize};
  return &kLoops;
}

size_t quantized_block_bytes(BlockFormat format, size_t count) {
  size_t bytes = 0;
  quantization::with_format<4>(format, [&]<typename Format>(Format) {
    bytes = quantization::kScaleBytes + quantization::packed_bytes<Format>(count);
  });
  return bytes;
}

void quantize(BlockFormat format, std::span<const float> in, ResidualSpan residual,
              Stochastic rounding, Bytes out) {
  best().quantize(format, in, residual, rounding, out);
}

void dequantize(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out) {
  best().dequantize(format, in, accumulate, out);
}

}  // namespace ringdist
