#include "kernel/cast.h"

#include <cstring>

#include "base/check.h"
#include "kernel/half.h"

namespace ringdist {
namespace {

// Formats of 16 bits, and the loops over them. A loop is inlined into one function per instruction
// set, which is not inlined itself, so the compiler vectorises it for that set.
struct BFloat {
  [[gnu::always_inline]] static float widen(uint16_t x) { return bfloat_to_float(x); }
  [[gnu::always_inline]] static uint16_t narrow(float x) { return float_to_bfloat(x); }
};

struct Half {
  [[gnu::always_inline]] static float widen(uint16_t x) { return half_to_float(x); }
  [[gnu::always_inline]] static uint16_t narrow(float x) { return float_to_half(x); }
};

template <typename Type, bool kAdd>
[[gnu::always_inline]] inline void widen_loop(const std::byte* in, float* __restrict out,
                                              size_t count) {
  for (size_t i = 0; i < count; ++i) {
    uint16_t stored;
    std::memcpy(&stored, in + i * sizeof stored, sizeof stored);
    out[i] = kAdd ? out[i] + Type::widen(stored) : Type::widen(stored);
  }
}

template <typename Type>
[[gnu::always_inline]] inline void narrow_loop(const float* in, std::byte* __restrict out,
                                               size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const uint16_t stored = Type::narrow(in[i]);
    std::memcpy(out + i * sizeof stored, &stored, sizeof stored);
  }
}

template <typename Type, bool kAdd>
[[gnu::noinline]] void widen_baseline(const std::byte* in, float* out, size_t count) {
  widen_loop<Type, kAdd>(in, out, count);
}

template <typename Type>
[[gnu::noinline]] void narrow_baseline(const float* in, std::byte* out, size_t count) {
  narrow_loop<Type>(in, out, count);
}

#if defined(__x86_64__)

template <typename Type, bool kAdd>
[[gnu::target("avx2,f16c"), gnu::noinline]] void widen_avx2(const std::byte* in, float* out,
                                                            size_t count) {
  widen_loop<Type, kAdd>(in, out, count);
}

template <typename Type>
[[gnu::target("avx2,f16c"), gnu::noinline]] void narrow_avx2(const float* in, std::byte* out,
                                                             size_t count) {
  narrow_loop<Type>(in, out, count);
}

bool has_avx2() {
  static const bool has = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has;
}

template <typename Type, bool kAdd>
void run_widen(const std::byte* in, float* out, size_t count) {
  (has_avx2() ? widen_avx2<Type, kAdd> : widen_baseline<Type, kAdd>)(in, out, count);
}

template <typename Type>
void run_narrow(const float* in, std::byte* out, size_t count) {
  (has_avx2() ? narrow_avx2<Type> : narrow_baseline<Type>)(in, out, count);
}

#else

template <typename Type, bool kAdd>
void run_widen(const std::byte* in, float* out, size_t count) {
  widen_baseline<Type, kAdd>(in, out, count);
}

template <typename Type>
void run_narrow(const float* in, std::byte* out, size_t count) {
  narrow_baseline<Type>(in, out, count);
}

#endif

// Adds unaligned fp32 values, as they arrive from the network.
void add_floats(const std::byte* in, float* out, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float x;
    std::memcpy(&x, in + i * sizeof x, sizeof x);
    out[i] += x;
  }
}

}  // namespace

void widen(DType dtype, ConstBytes in, std::span<float> out) {
  if (dtype == DType::kBFloat16) return run_widen<BFloat, false>(in.data(), out.data(), out.size());
  if (dtype == DType::kFloat16) return run_widen<Half, false>(in.data(), out.data(), out.size());
  check(dtype == DType::kFloat32, "a dtype that does not widen to fp32");
  if (!out.empty()) std::memcpy(out.data(), in.data(), out.size_bytes());
}

void widen_add(DType dtype, ConstBytes in, std::span<float> out) {
  if (dtype == DType::kBFloat16) return run_widen<BFloat, true>(in.data(), out.data(), out.size());
  if (dtype == DType::kFloat16) return run_widen<Half, true>(in.data(), out.data(), out.size());
  check(dtype == DType::kFloat32, "a dtype that does not widen to fp32");
  add_floats(in.data(), out.data(), out.size());
}

void narrow(DType dtype, std::span<const float> in, Bytes out) {
  if (dtype == DType::kBFloat16) return run_narrow<BFloat>(in.data(), out.data(), in.size());
  if (dtype == DType::kFloat16) return run_narrow<Half>(in.data(), out.data(), in.size());
  check(dtype == DType::kFloat32, "a dtype that fp32 does not narrow to");
  if (!in.empty()) std::memcpy(out.data(), in.data(), in.size_bytes());
}

}  // namespace ringdist
