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
//   kPremulSum is kSum: the factors are in the sources.
// - The bits of a result depend on its operands and their order alone: not on the instruction set,
// on
//   where the element lies, or on which source `out` is. So every NaN result is the canonical quiet
//   one of the dtype.
// - fp16, bf16 and fp8 accumulate in fp32 over all sources and round once, to nearest even, after
//   the division. Above its range float8_e4m3fn saturates, and
//   float8_e5m2 becomes inf: as in PyTorch's casts. fp32 and fp64 accumulate in their own type.
// - Complex numbers are pairs (real, imaginary) of such floats: complex32 of fp16. Products are the
//   plain formula (ac - bd) + (ad + bc)i.
// - Integers wrap on overflow, but not in an average whose divisor is not 1: their sum is exact,
// for
//   up to 2^21 sources, and the quotient truncates toward zero. `divisor` is then at least the
//   number of sources.
// - A bool is any byte other than 0, or 0; its result is 1 or 0. kSum and kMax are `or`, kProduct
//   and kMin `and`.
// - kMin and kMax take -0 for less than +0, and any NaN gives NaN: the order of the sources does
// not matter for the bits.
// - is_reducible(dtype, op) (base/dtype.h).
//
// `out` and the sources need no alignment. `out` may be exactly one of the sources; apart from that
// it overlaps none (sources may overlap each other). Allocates nothing; any thread, no shared
// state.
void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> sources,
            size_t count, int64_t divisor);

}  // namespace ringdist
