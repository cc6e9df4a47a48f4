// Decides which reductions NCCL can do. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "cuda/api/nccl_api.h"

namespace ringdist::gpu {

// NCCL's form of a reduction.
struct NcclReduction {
  NcclType type;
  NcclReduce op;
  int64_t numbers = 1;  // numbers of that type in an element; 2 for complex dtypes
};

// Returns NCCL's form of a reduction. Returns nullopt if NCCL lacks the dtype, or if its results
// differ from the contract of kernel/reduce.h.
//
// MIN and MAX of floats are excluded, because NCCL ignores NaNs. Averages of integers are excluded,
// because their rounding is unspecified. PRODUCT of complex numbers is excluded, because NCCL would
// multiply real and imaginary parts separately. For averages of fp8, NCCL multiplies by 1/n in fp8,
// which is 3 % too much for three ranks, and refuses a single rank (2.30.7). PREMUL_SUM maps to
// SUM, because the factors have been applied to the values. `has_fp8` is NcclApi::has_fp8().
std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op, bool has_fp8);

}  // namespace ringdist::gpu
