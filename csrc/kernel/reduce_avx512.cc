// Reduction loops for x86 with AVX-512. Functions name their instruction set themselves: see
// reduce_avx2.cc.
#include "kernel/reduce_isa.h"
#include "kernel/reduce_loop.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <limits>

#include "kernel/reduce_loops.h"

namespace ringdist {
namespace {

// Converts fp16 as in reduce_avx2.cc, but 16 elements at a time.
struct HalfAvx512 {
  using Stored = uint16_t;
  using Acc = float;
  static constexpr bool kBlockwise = true;
  static constexpr size_t kWidth = 16;
  // Conversions use a mask: GCC 12 reports uninitialized values in those without.
  static constexpr __mmask16 kAll = 0xffff;

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void widen(
      float* out, const std::byte* in, size_t n) {
    size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const auto* at = reinterpret_cast<const __m256i_u*>(in + i * sizeof(Stored));
      _mm512_storeu_ps(out + i, _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(at)));
    }
    for (; i < n; ++i) out[i] = half_to_float(reduction::load<Stored>(in, i));
  }

  [[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512")]] static void narrow(
      std::byte* out, const float* in, size_t n) {
    const __m512 nan = _mm512_set1_ps(std::numeric_limits<float>::quiet_NaN());
    size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const __m512 x = _mm512_loadu_ps(in + i);
      const __mmask16 unordered = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
      const __m512 canonical = _mm512_mask_mov_ps(x, unordered, nan);
      _mm256_storeu_si256(reinterpret_cast<__m256i_u*>(out + i * sizeof(Stored)),
                          _mm512_maskz_cvtps_ph(kAll, canonical, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; ++i) reduction::store(out, i, float_to_half(in[i]));
  }
};

template <typename Type>
[[gnu::target("avx512f,avx512bw,avx512dq,avx512vl,prefer-vector-width=512"), gnu::noinline]] void
run(ReduceOp op, std::byte* out, reduction::Sources sources, size_t count, int64_t divisor) {
  reduction::reduce_type<Type>(op, out, sources, count, divisor);
}

void dispatch(DType dtype, ReduceOp op, std::byte* out, reduction::Sources sources, size_t count,
              int64_t divisor) {
  const ReduceLoop loop = reduce_loop(dtype, op, count);
  const bool done = reduction::with_type<HalfAvx512>(loop.dtype, [&]<typename Type>(Type) {
    run<Type>(loop.op, out, sources, loop.count, divisor);
  });
  if (!done) reduce_baseline(dtype, op, out, sources, count, divisor);
}

}  // namespace

ReduceFunction reduce_avx512() {
  const bool can =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  return can ? dispatch : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

ReduceFunction reduce_avx512() { return nullptr; }

}  // namespace ringdist

#endif
