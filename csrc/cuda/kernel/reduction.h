// Plain reduction of one element on a device. Uses the functors of kernel/reduce_types.h and
// kernel/reduce_ops.h, so results are bit-identical to kernel/reduce.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "cuda/kernel/calls.h"
#include "cuda/warp/device.h"
#include "kernel/reduce_loop.h"
#include "kernel/reduce_ops.h"
#include "kernel/reduce_types.h"

namespace ringdist::gpu {

// Body of a reduction.
template <typename Type, typename Op>
struct Reduction {
  SourceList sources;
  void* out;
  int64_t divisor;
  int64_t count;

  RINGDIST_DEVICE void operator()(int64_t i) const {
    using Stored = typename Type::Stored;
    using Acc = typename Type::Acc;
    const auto value = [&](int source) {
      return Type::widen(static_cast<const Stored*>(sources.at[source])[i]);
    };
    Acc acc = value(0);
    // A single value is combined with itself where that only makes NaNs canonical.
    constexpr bool kIdempotent =
        std::is_same_v<Op, reduction::Min> || std::is_same_v<Op, reduction::Max>;
    if (kIdempotent && sources.count == 1) acc = Op::combine(acc, acc);
    for (int source = 1; source < sources.count; ++source) acc = Op::combine(acc, value(source));
    if constexpr (std::is_same_v<Op, reduction::Sum>)
      if (divisor != 1) acc /= static_cast<Acc>(divisor);
    static_cast<Stored*>(out)[i] = Type::narrow(acc);
  }
};

// Call run(Type(), Op()) with the functors of a reduction. `op` and the dtype are those of
// reduce_loop(), which leaves only bitwise ops for kBytes and kBool, and only PRODUCT for complex
// numbers. Return false if with_op() does not have the op.
template <typename Run>
bool with_op_of_bits(ReduceOp op, Run run) {
  if (op == ReduceOp::kBand) return run(reduction::And()), true;
  if (op == ReduceOp::kBor) return run(reduction::Or()), true;
  return run(reduction::Xor()), true;
}

template <typename Type, typename Run>
bool with_op(ReduceOp op, int64_t divisor, Run run) {
  using T = typename Type::Stored;
  using namespace reduction;
  switch (op) {
    case ReduceOp::kAvg:
      if constexpr (std::is_integral_v<T> && std::is_same_v<Type, Plain<T>>) {
        if (divisor != 1) return run(Averaged<T>(), Sum()), true;
      }
      return run(Type(), Sum()), true;
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:
      return run(Type(), Sum()), true;
    case ReduceOp::kMin:
      return run(Type(), Min()), true;
    case ReduceOp::kMax:
      return run(Type(), Max()), true;
    case ReduceOp::kProduct:
      return run(Type(), Product()), true;
    default:
      return false;
  }
}

template <typename Run>
bool with_reduction(const ReduceLoop& loop, int64_t divisor, Run run) {
  using namespace reduction;
  switch (loop.dtype) {
    case DType::kFloat64:
      return with_op<Plain<double>>(loop.op, divisor, run);
    case DType::kFloat32:
      return with_op<Plain<float>>(loop.op, divisor, run);
    case DType::kBFloat16:
      return with_op<BFloat>(loop.op, divisor, run);
    case DType::kFloat16:
      return with_op<Half>(loop.op, divisor, run);
    case DType::kInt64:
      return with_op<Plain<int64_t>>(loop.op, divisor, run);
    case DType::kInt32:
      return with_op<Plain<int32_t>>(loop.op, divisor, run);
    case DType::kInt16:
      return with_op<Plain<int16_t>>(loop.op, divisor, run);
    case DType::kInt8:
      return with_op<Plain<int8_t>>(loop.op, divisor, run);
    case DType::kUInt8:
      return with_op<Plain<uint8_t>>(loop.op, divisor, run);
    case DType::kUInt16:
      return with_op<Plain<uint16_t>>(loop.op, divisor, run);
    case DType::kUInt32:
      return with_op<Plain<uint32_t>>(loop.op, divisor, run);
    case DType::kUInt64:
      return with_op<Plain<uint64_t>>(loop.op, divisor, run);
    case DType::kFloat8E4M3FN:
      return with_op<Float8E4M3>(loop.op, divisor, run);
    case DType::kFloat8E5M2:
      return with_op<Float8E5M2>(loop.op, divisor, run);
    case DType::kBytes:
      return with_op_of_bits(loop.op, [&](auto op) { run(Plain<uint8_t>(), op); });
    case DType::kBool:
      return with_op_of_bits(loop.op, [&](auto op) { run(Bool(), op); });
    case DType::kComplex32:
      return run(ComplexHalf(), Product()), true;
    case DType::kComplex64:
      return run(Plain<Complex<float>>(), Product()), true;
    case DType::kComplex128:
      return run(Plain<Complex<double>>(), Product()), true;
  }
  return false;
}

}  // namespace ringdist::gpu
