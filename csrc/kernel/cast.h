// Conversions between fp32 and the dtypes that collectives compress (fp32, bf16, fp16). The bits
// are the same on every machine. Memory needs no alignment; inputs and outputs do not overlap. Any
// thread.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "base/buffers.h"
#include "base/dtype.h"

namespace ringdist {

// Compute out[i] = in[i], and out[i] += in[i]. `in` holds at least out.size() elements of `dtype`.
// Other dtypes than these three fail a check.
void widen(DType dtype, ConstBytes in, std::span<float> out);
void widen_add(DType dtype, ConstBytes in, std::span<float> out);

// Computes out[i] = in[i], rounded to nearest even. `out` holds at least in.size() elements of
// `dtype`. In 16 bits, too large values become inf, and a NaN becomes the canonical one. fp32
// values are copied, NaNs included.
void narrow(DType dtype, std::span<const float> in, Bytes out);

// Returns true for all values but inf and NaN. It tests the bits, so it works even if the compiler
// assumes that floats are finite.
[[gnu::always_inline]] inline bool is_finite(float x) {
  return (std::bit_cast<uint32_t>(x) & 0x7f800000) != 0x7f800000;
}

}  // namespace ringdist
