// Elementary operations of the reduction loop. They are inlined into loops that the compiler
// vectorises for the caller's instruction set. So they have no branches, only selects.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "kernel/half.h"

namespace ringdist::reduction {

// Unsigned type of at least the width of `unsigned`. Its arithmetic wraps without undefined
// behaviour; a narrower type would be promoted to int.
template <typename T>
using Wrapping = std::common_type_t<std::make_unsigned_t<T>, unsigned>;

// Unsigned type of the width of a float type.
template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// Complex number in torch's memory layout.
template <typename T>
struct Complex {
  T real;
  T imaginary;
};

// Replaces any NaN by the quiet one. The payload that a sum keeps depends on the order of the
// operands in an instruction, which the compiler chooses. Integers have no NaN and are returned as
// they are.
template <typename T>
[[gnu::always_inline]] constexpr T canonical(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    constexpr auto kNaN = std::bit_cast<BitsOf<T>>(std::numeric_limits<T>::quiet_NaN());
    return std::bit_cast<T>(select(x != x, kNaN, std::bit_cast<BitsOf<T>>(x)));
  } else {
    return x;
  }
}
template <typename T>
[[gnu::always_inline]] constexpr Complex<T> canonical(Complex<T> x) {
  return {canonical(x.real), canonical(x.imaginary)};
}

// Operations: combine(a, b) returns a op b.
struct Sum {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
    else
      return a + b;
  }
};

struct Product {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
    else
      return a * b;
  }
  template <typename T>
  [[gnu::always_inline]] static constexpr Complex<T> combine(Complex<T> a, Complex<T> b) {
    return {a.real * b.real - a.imaginary * b.imaginary,
            a.real * b.imaginary + a.imaginary * b.real};
  }
};

struct And {
  [[gnu::always_inline]] static constexpr uint8_t combine(uint8_t a, uint8_t b) { return a & b; }
};

struct Or {
  [[gnu::always_inline]] static constexpr uint8_t combine(uint8_t a, uint8_t b) { return a | b; }
};

struct Xor {
  [[gnu::always_inline]] static constexpr uint8_t combine(uint8_t a, uint8_t b) { return a ^ b; }
};

// Minimum or maximum. Floats are selected by their bits, because a comparison treats -0 and +0 as
// equal and is false for NaN. The result would then depend on the order of the operands.
template <bool kMax>
struct Extreme {
  template <typename T>
  [[gnu::always_inline]] static constexpr T combine(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return (kMax ? a > b : a < b) ? a : b;
    } else {
      using Bits = BitsOf<T>;
      const auto x = std::bit_cast<Bits>(a);
      const auto y = std::bit_cast<Bits>(b);
      // Equal floats differ at most in the sign of zero: `or` finds -0, and `and` finds +0.
      const Bits same = kMax ? (x & y) : (x | y);
      constexpr auto kNaN = std::bit_cast<Bits>(std::numeric_limits<T>::quiet_NaN());
      const Bits other = select(kMax ? a > b : a < b, x, y);
      const Bits ordered = select(a == b, same, other);
      return std::bit_cast<T>(select(a != a, kNaN, select(b != b, kNaN, ordered)));
    }
  }
};
using Min = Extreme<false>;
using Max = Extreme<true>;

// Unaligned load and store of element i.
template <typename T>
[[gnu::always_inline]] inline T load(const std::byte* at, size_t i) {
  T out;
  std::memcpy(&out, at + i * sizeof(T), sizeof(T));
  return out;
}

template <typename T>
[[gnu::always_inline]] inline void store(std::byte* at, size_t i, T value) {
  std::memcpy(at + i * sizeof(T), &value, sizeof(T));
}

}  // namespace ringdist::reduction
