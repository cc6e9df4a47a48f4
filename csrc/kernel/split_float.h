// Splitting of floats into a byte that compresses well, because neighbours have similar ones, and
// the rest, which is noise. The templates also serve loops on a device.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// Split of one float. The byte is the highest one of the bits rotated left by kRotate. A rotation
// by one moves the sign to the lowest bit, so that the byte is the exponent alone.
template <typename BitsType, int kRotate>
struct SplitFloat {
  using Bits = BitsType;
  static constexpr int kRest = sizeof(Bits) - 1;  // bytes

  // Split a float into its byte and the rest.
  static constexpr uint8_t symbol(Bits x) {
    return static_cast<uint8_t>(rotated(x) >> (8 * kRest));
  }
  static constexpr Bits rest(Bits x) { return rotated(x) & kRestMask; }
  // Restores a float. The highest byte of `rest` is ignored.
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
// The exponent of fp16 is too short for a byte of its own.
using SplitFloat16 = SplitFloat<uint16_t, 0>;

// Splits bytes.size() elements of `dtype`, which is fp32, bf16 or fp16, into `bytes`, one each, and
// `rest`, which gets dtype_size(dtype) - 1 bytes each, low byte first. Spans must not overlap. The
// bytes are the same on every machine. Any thread.
void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest);

// Does the inverse of split_exponents(), under the same conditions.
void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out);

}  // namespace ringdist
