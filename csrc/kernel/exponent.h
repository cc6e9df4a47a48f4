// Splits floats into a byte that compresses and the rest (kernel/split_float.h). Any thread. Same
// bytes on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// Elements of `dtype` in memory -> one of `bytes` each, and dtype_size(dtype) - 1 bytes of `rest`
// each, low byte first.
void split_exponents(DType dtype, ConstBytes in, std::span<uint8_t> bytes, Bytes rest);

void join_exponents(DType dtype, std::span<const uint8_t> bytes, ConstBytes rest, Bytes out);

}  // namespace ringdist
