// Mapping of reductions to loops: several reductions share a loop with the same bits. The loops of
// CPUs and of devices use it.
#pragma once

#include <cstddef>

#include "base/dtype.h"

namespace ringdist {

// Dtype, operation and count of the loop that computes a reduction.
struct ReduceLoop {
  DType dtype;
  ReduceOp op;
  size_t count;  // elements of `dtype`, which may differ from those of the reduction
};

// Returns the loop for a reduction. Sums of complex numbers are those of twice as many floats.
// Bitwise operations on integers run on kBytes, and kBool has bitwise operations only.
inline ReduceLoop reduce_loop(DType dtype, ReduceOp op, size_t count) {
  const bool bits = op == ReduceOp::kBand || op == ReduceOp::kBor || op == ReduceOp::kBxor;
  if (dtype == DType::kBool) {
    if (op == ReduceOp::kSum || op == ReduceOp::kMax) op = ReduceOp::kBor;
    if (op == ReduceOp::kProduct || op == ReduceOp::kMin) op = ReduceOp::kBand;
    return {dtype, op, count};
  }
  if (bits) return {DType::kBytes, op, count * dtype_size(dtype)};
  if (op == ReduceOp::kProduct) return {dtype, op, count};
  switch (dtype) {
    case DType::kComplex32:
      return {DType::kFloat16, op, 2 * count};
    case DType::kComplex64:
      return {DType::kFloat32, op, 2 * count};
    case DType::kComplex128:
      return {DType::kFloat64, op, 2 * count};
    default:
      return {dtype, op, count};
  }
}

}  // namespace ringdist
