// Reference arithmetic for tests of the kernels. Written for clarity: one element at a time and no
// optimizations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/dtype.h"
#include "kernel/half.h"

namespace ringdist::reference {

// Loads a T from any address, aligned or not.
template <typename T>
T load(const std::byte* at) {
  T out;
  std::memcpy(&out, at, sizeof(T));
  return out;
}

// Returns the value of a float with `exponent_bits` and `mantissa_bits`, and a sign bit above
// them.
double decode(uint16_t bits, int exponent_bits, int mantissa_bits);

// Returns the nearest such float, ties to even. Overflow gives inf, and NaN the canonical NaN.
uint16_t encode(double value, int exponent_bits, int mantissa_bits);

// Do the same for the 8-bit formats. Overflow gives the largest value of float8_e4m3fn, and inf
// for float8_e5m2.
double decode_float8(DType dtype, uint8_t code);
uint8_t encode_float8(DType dtype, double value);

// Returns the expected result of reduce() for one element. Operands and result are bytes of
// `dtype`.
std::vector<std::byte> reduce_one(DType dtype, ReduceOp op,
                                  const std::vector<const std::byte*>& operands, int64_t divisor);

}  // namespace ringdist::reference
