// Element types of the reduction loop. Each has a type in memory (Stored), a type for accumulation
// (Acc) and conversions. Most convert one element at a time. Types with kBlockwise convert up to
// kBlock elements at a time by widen(Acc* out, const std::byte* in, size_t n) and narrow(std::byte*
// out, const Acc* in, size_t n).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernel/fp8.h"
#include "kernel/half.h"
#include "kernel/reduce_ops.h"

namespace ringdist::reduction {

// Elements accumulated at a time. The accumulator (16 KiB at most) stays in the first-level cache
// while each source is read once.
inline constexpr size_t kBlock = 1024;

// Type that accumulates in itself.
template <typename T>
struct Plain {
  using Stored = T;
  using Acc = T;
  [[gnu::always_inline]] static constexpr T widen(T x) { return x; }
  [[gnu::always_inline]] static constexpr T narrow(T x) { return canonical(x); }
};

// Integer type in an average; its sums do not wrap. Narrow types are summed and divided as doubles,
// which vectorises. Sums of up to 2^21 values are exact. A quotient by less than that is further
// from the next integer than its rounding error.
template <typename T>
struct Averaged {
  using Stored = T;
  using Acc = std::conditional_t<sizeof(T) == 8, __int128, double>;
  [[gnu::always_inline]] static constexpr Acc widen(T x) { return static_cast<Acc>(x); }
  [[gnu::always_inline]] static constexpr T narrow(Acc x) {
    if constexpr (sizeof(T) == 8) return static_cast<T>(x);
    using Whole = std::conditional_t<std::is_same_v<T, uint32_t>, uint32_t, int32_t>;
    return static_cast<T>(static_cast<Whole>(x));
  }
};

// The two 16-bit formats accumulate in fp32 and round once (kernel/half.h).
struct BFloat {
  using Stored = uint16_t;
  using Acc = float;
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return bfloat_to_float(x); }
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x) { return float_to_bfloat(x); }
};

struct Half {
  using Stored = uint16_t;
  using Acc = float;
  [[gnu::always_inline]] static constexpr float widen(uint16_t x) { return half_to_float(x); }
  [[gnu::always_inline]] static constexpr uint16_t narrow(float x) { return float_to_half(x); }
};

// Both 8-bit formats have this NaN, as in PyTorch's casts.
inline constexpr uint8_t kFloat8NaN = 0x7f;

// PyTorch's float8_e4m3fn, which has no inf: too large values saturate.
struct Float8E4M3 {
  using Stored = uint8_t;
  using Acc = float;
  [[gnu::always_inline]] static constexpr float widen(uint8_t x) {
    const auto finite = std::bit_cast<uint32_t>(E4M3::widen(x));
    const auto nan = std::bit_cast<uint32_t>(std::numeric_limits<float>::quiet_NaN());
    return std::bit_cast<float>(select((x & 0x7f) == kFloat8NaN, nan, finite));
  }
  [[gnu::always_inline]] static constexpr uint8_t narrow(float x) {
    return static_cast<uint8_t>(select<uint32_t>(x != x, kFloat8NaN, E4M3::narrow(x)));
  }
};

// PyTorch's float8_e5m2, which has inf: too large values become it.
struct Float8E5M2 {
  using Stored = uint8_t;
  using Acc = float;
  // Limited by the code that follows the largest finite value; that code means inf.
  using ToInfinity = Fp8Format<5, 2, 0x7c>;
  // The code is the upper half of an fp16.
  [[gnu::always_inline]] static constexpr float widen(uint8_t x) {
    return half_to_float(static_cast<uint16_t>(x << 8));
  }
  [[gnu::always_inline]] static constexpr uint8_t narrow(float x) {
    return static_cast<uint8_t>(select<uint32_t>(x != x, kFloat8NaN, ToInfinity::narrow(x)));
  }
};

// Bool: any byte but 0 is read as 1.
struct Bool {
  using Stored = uint8_t;
  using Acc = uint8_t;
  [[gnu::always_inline]] static constexpr uint8_t widen(uint8_t x) { return x != 0; }
  [[gnu::always_inline]] static constexpr uint8_t narrow(uint8_t x) { return x; }
};

// complex32: each part is fp16, and products are computed in fp32.
struct ComplexHalf {
  using Stored = Complex<uint16_t>;
  using Acc = Complex<float>;
  [[gnu::always_inline]] static constexpr Acc widen(Stored x) {
    return {half_to_float(x.real), half_to_float(x.imaginary)};
  }
  [[gnu::always_inline]] static constexpr Stored narrow(Acc x) {
    return {float_to_half(x.real), float_to_half(x.imaginary)};
  }
};

// Wraps a type so that it converts blocks by function calls, for types that need small code more
// than speed.
template <typename Type>
struct OutOfLine {
  using Stored = typename Type::Stored;
  using Acc = typename Type::Acc;
  static constexpr bool kBlockwise = true;
  [[gnu::noinline]] static void widen(Acc* out, const std::byte* in, size_t n) {
    for (size_t i = 0; i < n; ++i) out[i] = Type::widen(load<Stored>(in, i));
  }
  [[gnu::noinline]] static void narrow(std::byte* out, const Acc* in, size_t n) {
    for (size_t i = 0; i < n; ++i) store<Stored>(out, i, Type::narrow(in[i]));
  }
};

// Types that convert blocks instead of single elements.
template <typename Type>
concept Blockwise = requires { Type::kBlockwise; };

}  // namespace ringdist::reduction
