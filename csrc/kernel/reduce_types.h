// The element types of the reduction loop: what lies in memory (Stored), what it is accumulated as
// (Acc), and the way from one to the other, either per element or, for a type with kBlockwise, up
// to kBlock elements at a time: widen(Acc* out, const std::byte* in, size_t n) and
// narrow(std::byte* out, const Acc* in, size_t n).
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

// Elements accumulated at a time: the accumulator (16 KiB at most) stays in the first-level cache
// while each source is read once.
inline constexpr size_t kBlock = 1024;

template <typename T>
struct Plain {
  using Stored = T;
  using Acc = T;
  [[gnu::always_inline]] static constexpr T widen(T x) { return x; }
  [[gnu::always_inline]] static constexpr T narrow(T x) { return canonical(x); }
};

// An integer in an average: its sums do not wrap. The narrower ones are added up and divided as
// doubles, which vectorises: sums of up to 2^21 are exact, and a quotient by less than that is
// further from the next integer than it is rounded.
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

// Both 8-bit formats have this NaN, as PyTorch's casts give it.
inline constexpr uint8_t kFloat8NaN = 0x7f;

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

struct Float8E5M2 {
  using Stored = uint8_t;
  using Acc = float;
  // Bounded by the code after the largest finite value, which is inf's.
  using ToInfinity = Fp8Format<5, 2, 0x7c>;
  // The upper half of an fp16.
  [[gnu::always_inline]] static constexpr float widen(uint8_t x) {
    return half_to_float(static_cast<uint16_t>(x << 8));
  }
  [[gnu::always_inline]] static constexpr uint8_t narrow(float x) {
    return static_cast<uint8_t>(select<uint32_t>(x != x, kFloat8NaN, ToInfinity::narrow(x)));
  }
};

// 0 or 1, whatever the byte in memory.
struct Bool {
  using Stored = uint8_t;
  using Acc = uint8_t;
  [[gnu::always_inline]] static constexpr uint8_t widen(uint8_t x) { return x != 0; }
  [[gnu::always_inline]] static constexpr uint8_t narrow(uint8_t x) { return x; }
};

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

// A type blockwise, its conversions as calls: for what need not be fast but should be small.
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

template <typename Type>
concept Blockwise = requires { Type::kBlockwise; };

}  // namespace ringdist::reduction
