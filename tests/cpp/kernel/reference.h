// Arithmetic to compare the kernels with, written for clarity: one element at a time, no tricks.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "kernel/half.h"

namespace ringdist::reference {

// What lies at any address, aligned or not.
template <typename T>
T load(const std::byte* at) {
  T out;
  std::memcpy(&out, at, sizeof(T));
  return out;
}

// The value of a float with `exponent_bits` and `mantissa_bits`, stored with a sign bit before
// them.
double decode(uint16_t bits, int exponent_bits, int mantissa_bits);

// The nearest such float, ties to even; overflow gives inf, NaN the canonical one.
uint16_t encode(double value, int exponent_bits, int mantissa_bits);

// The same for the 8-bit formats. Overflow gives float8_e4m3fn's largest, float8_e5m2's inf.
double decode_float8(DType dtype, uint8_t code);
uint8_t encode_float8(DType dtype, double value);

// What reduce() has to give for one element: `operands` and the result are dtype's bytes.
std::vector<std::byte> reduce_one(DType dtype, ReduceOp op,
                                  const std::vector<const std::byte*>& operands, int64_t divisor);

}  // namespace ringdist::reference
