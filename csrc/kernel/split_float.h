// A float of a dtype in two: a byte that compresses, because neighbours have it alike, and the
// rest, which is noise. For loops on a device, too.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// The byte is the highest of the bits rotated left by kRotate.
template <typename BitsType, int kRotate>
struct SplitFloat {
  using Bits = BitsType;
  static constexpr int kRest = sizeof(Bits) - 1;  // bytes

  static constexpr uint8_t symbol(Bits x) {
    return static_cast<uint8_t>(rotated(x) >> (8 * kRest));
  }
  static constexpr Bits rest(Bits x) { return rotated(x) & kRestMask; }
  // Of `rest` the highest byte may be anything.
  static constexpr Bits join(uint8_t symbol, Bits rest) {
    const auto x = static_cast<Bits>((rest & kRestMask) | Bits{symbol} << (8 * kRest));
    return static_cast<Bits>(x >> kRotate | x << (kWidth - kRotate) % kWidth);
  }

 private:
  static constexpr int kWidth = 8 * sizeof(Bits);
  static constexpr auto kRestMask = static_cast<Bits>((uint32_t{1} << (8 * kRest)) - 1);

  static constexpr Bits rotated(Bits x) {
    return static_cast<Bits>(x << kRotate | x >> (kWidth - kRotate) % kWidth);
  }
};

using SplitFloat32 = SplitFloat<uint32_t, 1>;
using SplitBFloat16 = SplitFloat<uint16_t, 1>;
// Its exponent is too short for a byte of its own.
using SplitFloat16 = SplitFloat<uint16_t, 0>;

// Splits floats into a byte that compresses and the rest (kernel/split_float.h). Any thread. Same
// bytes on every machine.

// Elements of `dtype` in memory -> one of `bytes` each, and dtype_size(dtype) - 1 bytes of `rest`
// each, low byte first.
void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest);

void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out);

}  // namespace ringdist
