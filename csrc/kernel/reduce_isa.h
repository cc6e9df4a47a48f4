// The reduction loop for one instruction set each: same contract as reduce(), same bits. For
// reduce() to choose from, and for tests to compare.
#pragma once

#include <cstddef>
#include <span>

#include "base/dtype.h"

namespace ringdist {

using ReduceFunction = void (*)(DType dtype, ReduceOp op, std::byte* out,
                                std::span<const std::byte* const> sources, size_t count,
                                int64_t divisor);

void reduce_baseline(DType dtype, ReduceOp op, std::byte* out,
                     std::span<const std::byte* const> sources, size_t count, int64_t divisor);

// Null where this processor has no AVX2 or no F16C.
ReduceFunction reduce_avx2();
// Null where it lacks one of AVX-512's F, BW, DQ and VL.
ReduceFunction reduce_avx512();

}  // namespace ringdist
