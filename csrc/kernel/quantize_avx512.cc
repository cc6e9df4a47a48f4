// Quantization loops for x86 with AVX-512. Functions name their instruction set themselves, for the
// reason given in kernel/reduce_avx2.cc.
#include "kernel/quantize_isa.h"

#if defined(__x86_64__)

#include "kernel/quantize_loops.h"

namespace ringdist {
namespace {

template <typename Format>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] void run_quantize(
    std::span<const float> in, ResidualSpan residual, Stochastic rounding, Bytes out) {
  quantization::quantize_either<Format>(in, residual, rounding, out);
}

template <typename Format>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl"), gnu::noinline]] void run_dequantize(
    ConstBytes in, bool accumulate, std::span<float> out) {
  quantization::dequantize_either<Format>(in, accumulate, out);
}

void quantize_with(BlockFormat format, std::span<const float> in, ResidualSpan residual,
                   Stochastic rounding, Bytes out) {
  quantization::with_format<16>(
      format, [&]<typename Format>(Format) { run_quantize<Format>(in, residual, rounding, out); });
}

void dequantize_with(BlockFormat format, ConstBytes in, bool accumulate, std::span<float> out) {
  quantization::with_format<16>(
      format, [&]<typename Format>(Format) { run_dequantize<Format>(in, accumulate, out); });
}

constexpr QuantizeLoops kLoops{quantize_with, dequantize_with};

}  // namespace

const QuantizeLoops* quantize_avx512() {
  static const bool can = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  return can ? &kLoops : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

const QuantizeLoops* quantize_avx512() { return nullptr; }

}  // namespace ringdist

#endif
