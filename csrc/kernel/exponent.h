// Splits floats into a byte that compresses, because neighbours have it alike, and the rest, which
// is noise. Any thread. Same bytes on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// For fp32 and bf16 the byte is the exponent and the rest mantissa and sign (the value's bits
// rotated left by one, less their highest byte). An fp16 splits into its two bytes: its exponent is
// too short for a byte of its own.

// Elements of `dtype` in memory -> one of `bytes` each, and dtype_size(dtype) - 1 bytes of `rest`
// each, low byte first.
void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest);

void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out);

}  // namespace ringdist
