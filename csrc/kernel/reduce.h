// The reduction loop: one pass over all sources.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace ringdist {

// out[i] = sources[0][i] op sources[1][i] op ..., in that order, for i in [0, count) elements.
//
// - There is at least one source. kAvg sums and divides the sum by `divisor` >= 1: pass the number
//   of contributions where the result is final, 1 where it is not. Other ops ignore the divisor.
// - fp16 and bf16 accumulate in fp32 over all sources and round once, to nearest even, after the
//   division; their NaN results are canonical. fp32 and fp64 accumulate in their own type.
// - Integers wrap on overflow; their average truncates toward zero.
// - kMin and kMax take -0 for less than +0, and any NaN gives the canonical quiet NaN of the dtype:
//   the order of the sources does not matter for the bits.
// - The dtype is not kBytes, the op not kNone.
//
// `out` and the sources need no alignment. `out` may be exactly one of the sources; apart from that
// it overlaps none (sources may overlap each other). Allocates nothing; any thread, no shared
// state.
void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> sources,
            size_t count, int64_t divisor);

}  // namespace ringdist
