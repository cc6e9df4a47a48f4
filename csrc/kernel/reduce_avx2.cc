// Reduction loops for x86 with AVX2 and F16C. Functions name their instruction set themselves. If
// the whole file were compiled for AVX2, so would be inline functions of the standard library. The
// linker could then use these copies in other files, which must run on older processors.
#include "kernel/reduce_isa.h"
#include "kernel/reduce_loop.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <limits>

#include "kernel/reduce_loops.h"

namespace ringdist {
namespace {

// Converts fp16 by the processor's instruction. It is exact and rounds to nearest even in all
// floating-point modes of the thread. NaNs are replaced before they are narrowed, because the
// instruction keeps a part of the payload.
struct HalfF16c {
  using Stored = uint16_t;
  using Acc = float;
  static constexpr bool kBlockwise = true;
  static constexpr size_t kWidth = 8;

  [[gnu::target("avx2,f16c")]] static void widen(float* out, const std::byte* in, size_t n) {
    size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      const auto* at = reinterpret_cast<const __m128i_u*>(in + i * sizeof(Stored));
      _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128(at)));
    }
    for (; i < n; ++i) out[i] = half_to_float(reduction::load<Stored>(in, i));
  }

  [[gnu::target("avx2,f16c")]] static void narrow(std::byte* out, const float* in, size_t n) {
    const __m256 nan = _mm256_set1_ps(std::numeric_limits<float>::quiet_NaN());
    size_t i = 0;
    for (; i + kWidth <= n; i += kWidth) {
      __m256 x = _mm256_loadu_ps(in + i);
      x = _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
      _mm_storeu_si128(reinterpret_cast<__m128i_u*>(out + i * sizeof(Stored)),
                       _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    for (; i < n; ++i) reduction::store(out, i, float_to_half(in[i]));
  }
};

template <typename Type>
[[gnu::target("avx2,f16c"), gnu::noinline]] void run(ReduceOp op, std::byte* out,
                                                     reduction::Sources sources, size_t count,
                                                     int64_t divisor) {
  reduction::reduce_type<Type>(op, out, sources, count, divisor);
}

void dispatch(DType dtype, ReduceOp op, std::byte* out, reduction::Sources sources, size_t count,
              int64_t divisor) {
  const ReduceLoop loop = reduce_loop(dtype, op, count);
  const bool done = reduction::with_type<HalfF16c>(loop.dtype, [&]<typename Type>(Type) {
    run<Type>(loop.op, out, sources, loop.count, divisor);
  });
  if (!done) reduce_baseline(dtype, op, out, sources, count, divisor);
}

}  // namespace

ReduceFunction reduce_avx2() {
  const bool can = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("f16c") != 0;
  return can ? dispatch : nullptr;
}

}  // namespace ringdist

#else

namespace ringdist {

ReduceFunction reduce_avx2() { return nullptr; }

}  // namespace ringdist

#endif
