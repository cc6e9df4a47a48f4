// Reduction of several sources in one pass. It has no state and allocates nothing. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/dtype.h"

namespace ringdist {

// Computes out[i] = sources[0][i] op sources[1][i] op ..., in that order, for i in [0, count).
//
// Arguments: there is at least one source, and is_reducible(dtype, op) holds (base/dtype.h). kAvg
// divides the sum by `divisor` >= 1. Pass the number of contributions if the result is final, and 1
// otherwise. Other ops ignore the divisor. kPremulSum is the same as kSum, because the sources
// already contain the factors.
//
// Memory: `out` and the sources need no alignment. `out` may be exactly one of the sources and
// overlaps none otherwise. Sources may overlap each other.
//
// Determinism: the bits of a result depend only on its operands and their order. They depend
// neither on the instruction set, nor on an element's position, nor on which source `out` is. So
// every NaN result is the canonical quiet NaN of the dtype.
//
// Floats: fp16, bf16 and fp8 accumulate in fp32 over all sources and round once, to nearest even,
// after the division. Above its range float8_e4m3fn saturates and float8_e5m2 becomes inf, as in
// PyTorch's casts. Types fp32 and fp64 accumulate in their own type. kMin and kMax take -0 for less
// than +0, and any NaN gives NaN. So the order of their sources does not affect the bits.
//
// Complex numbers are pairs (real, imaginary) of such floats; complex32 has fp16. Products are the
// plain formula (ac - bd) + (ad + bc)i.
//
// Integers wrap on overflow, except in an average with a divisor other than 1. There the sum is
// exact for up to 2^21 sources, and the quotient truncates toward zero. `divisor` is then at least
// the number of sources.
//
// Bools: any byte other than 0 counts as true, and results are 1 or 0. Here kSum and kMax are `or`,
// and kProduct and kMin are `and`.
void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> sources,
            size_t count, int64_t divisor);

}  // namespace ringdist
