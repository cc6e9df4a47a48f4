// Implementations of reduce(), one per instruction set: same contract, same bits. reduce() chooses
// among them, and tests compare them. They do not check their arguments.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace ringdist {

using ReduceFunction = void (*)(DType dtype, ReduceOp op, std::byte* out,
                                std::span<const std::byte* const> sources, size_t count,
                                int64_t divisor);

// The implementation for all processors. It has all dtypes; the others pass rare ones on to it.
void reduce_baseline(DType dtype, ReduceOp op, std::byte* out,
                     std::span<const std::byte* const> sources, size_t count, int64_t divisor);

// Returns null if this processor lacks AVX2 or F16C.
ReduceFunction reduce_avx2();
// Returns null if this processor lacks F, BW, DQ or VL of AVX-512.
ReduceFunction reduce_avx512();

}  // namespace ringdist
