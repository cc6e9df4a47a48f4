// Which reductions are NCCL's. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>

#include "base/dtype.h"
#include "cuda/api/nccl_api.h"

namespace ringdist::gpu {

struct NcclReduction {
  NcclType type;
  NcclReduce op;
  int64_t numbers = 1;  // of that type in an element: two of a complex one
};

// None where NCCL has no such dtype, or gives other results than kernel/reduce.h promises: it lets
// MIN and MAX pass over NaNs, and rounds averages of integers as it likes. Of fp8 it averages by
// multiplying with 1/n in fp8, 3 % too much for three ranks, and refuses to do it for a rank alone
// (2.30.7). PREMUL_SUM is SUM: the factors are in the values.
std::optional<NcclReduction> nccl_reduction(DType dtype, ReduceOp op, bool has_fp8);

}  // namespace ringdist::gpu
