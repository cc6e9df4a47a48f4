// The reduction loop as templates that are always inlined into their callers. So the vectorised
// code uses the caller's instruction set, and no copy of it can reach another object file. The
// preconditions, aliasing included, are those of reduce() (kernel/reduce.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <source_location>
#include <span>
#include <type_traits>

#include "base/check.h"
#include "base/dtype.h"
#include "kernel/reduce_ops.h"
#include "kernel/reduce_types.h"

namespace ringdist::reduction {

using Sources = std::span<const std::byte* const>;

// Computes inout[i] = inout[i] op other[i].
template <typename T, typename Op>
[[gnu::always_inline]] inline void combine_into(std::byte* inout, const std::byte* __restrict other,
                                                size_t count) {
  for (size_t i = 0; i < count; ++i)
    store<T>(inout, i, Plain<T>::narrow(Op::combine(load<T>(inout, i), load<T>(other, i))));
}

// Computes out[i] = a[i] op b[i]. `out` overlaps neither.
template <typename T, typename Op>
[[gnu::always_inline]] inline void combine_two(std::byte* __restrict out, const std::byte* a,
                                               const std::byte* b, size_t count) {
  for (size_t i = 0; i < count; ++i)
    store<T>(out, i, Plain<T>::narrow(Op::combine(load<T>(a, i), load<T>(b, i))));
}

// Computes acc[i] = op over all sources at [begin, begin + n). All sources are read before the
// block is written, so `out` may be one of them.
template <typename Type, typename Op>
  requires(!Blockwise<Type>)
[[gnu::always_inline]] inline void accumulate(typename Type::Acc* __restrict acc, Sources sources,
                                              size_t begin, size_t n) {
  using T = typename Type::Stored;
  const std::byte* first = sources[0] + begin * sizeof(T);
  // A single source is combined with itself where that changes nothing except that NaNs become
  // canonical.
  const std::byte* second = sources[sources.size() == 1 ? 0 : 1] + begin * sizeof(T);
  constexpr bool kIdempotent = std::is_same_v<Op, Min> || std::is_same_v<Op, Max>;
  if (sources.size() == 1 && !kIdempotent) {
    for (size_t i = 0; i < n; ++i) acc[i] = Type::widen(load<T>(first, i));
    return;
  }
  for (size_t i = 0; i < n; ++i)
    acc[i] = Op::combine(Type::widen(load<T>(first, i)), Type::widen(load<T>(second, i)));
  for (size_t s = 2; s < sources.size(); ++s) {
    const std::byte* at = sources[s] + begin * sizeof(T);
    for (size_t i = 0; i < n; ++i) acc[i] = Op::combine(acc[i], Type::widen(load<T>(at, i)));
  }
}

// Does the same for types that are converted in blocks.
template <typename Type, typename Op>
  requires Blockwise<Type>
[[gnu::always_inline]] inline void accumulate(typename Type::Acc* __restrict acc, Sources sources,
                                              size_t begin, size_t n) {
  const size_t skip = begin * sizeof(typename Type::Stored);
  typename Type::Acc wide[kBlock];
  Type::widen(acc, sources[0] + skip, n);
  for (size_t s = 1; s < sources.size(); ++s) {
    Type::widen(wide, sources[s] + skip, n);
    for (size_t i = 0; i < n; ++i) acc[i] = Op::combine(acc[i], wide[i]);
  }
}

// Reduces block by block: accumulates, divides if there is a divisor, and converts to the stored
// type.
template <typename Type, typename Op>
[[gnu::always_inline]] inline void reduce_blocks(std::byte* out, Sources sources, size_t count,
                                                 int64_t divisor) {
  using Stored = typename Type::Stored;
  typename Type::Acc acc[kBlock];
  for (size_t begin = 0; begin < count; begin += kBlock) {
    const size_t n = count - begin < kBlock ? count - begin : kBlock;
    accumulate<Type, Op>(acc, sources, begin, n);
    if constexpr (std::is_same_v<Op, Sum>)
      if (divisor != 1)
        for (size_t i = 0; i < n; ++i) acc[i] /= static_cast<typename Type::Acc>(divisor);
    std::byte* to = out + begin * sizeof(Stored);
    if constexpr (Blockwise<Type>)
      Type::narrow(to, acc, n);
    else
      for (size_t i = 0; i < n; ++i) store<Stored>(to, i, Type::narrow(acc[i]));
  }
}

// Reduces with one operation. Two sources without a divisor need no accumulator.
template <typename Type, typename Op>
[[gnu::always_inline]] inline void reduce_op(std::byte* out, Sources sources, size_t count,
                                             int64_t divisor) {
  using T = typename Type::Stored;
  if constexpr (std::is_same_v<Type, Plain<T>>) {
    if (sources.size() == 2 && divisor == 1) {
      // The operations commute, so it does not matter which of the two is `out`.
      if (out == sources[0]) return combine_into<T, Op>(out, sources[1], count);
      if (out == sources[1]) return combine_into<T, Op>(out, sources[0], count);
      return combine_two<T, Op>(out, sources[0], sources[1], count);
    }
  }
  reduce_blocks<Type, Op>(out, sources, count, divisor);
}

// Selects the loop of an arithmetic operation, for all types but complex numbers.
template <typename Type>
[[gnu::always_inline]] inline void reduce_type(ReduceOp op, std::byte* out, Sources sources,
                                               size_t count, int64_t divisor) {
  using T = typename Type::Stored;
  constexpr bool kIsInteger = std::is_integral_v<T> && std::is_same_v<Type, Plain<T>>;
  switch (op) {
    case ReduceOp::kAvg:
      if constexpr (kIsInteger) {
        if (divisor != 1) return reduce_op<Averaged<T>, Sum>(out, sources, count, divisor);
      }
      return reduce_op<Type, Sum>(out, sources, count, divisor);
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:
      return reduce_op<Type, Sum>(out, sources, count, 1);
    case ReduceOp::kMin:
      return reduce_op<Type, Min>(out, sources, count, 1);
    case ReduceOp::kMax:
      return reduce_op<Type, Max>(out, sources, count, 1);
    case ReduceOp::kProduct:
      return reduce_op<Type, Product>(out, sources, count, 1);
    default:
      check_failed("no loop for this reduction", std::source_location::current());
  }
}

// Calls run(Type()) with the element type of a dtype that has loops for every instruction set.
// Returns false for other dtypes, because their loops are not worth the code size. `HalfType`
// converts fp16.
template <typename HalfType, typename Run>
bool with_type(DType dtype, Run run) {
  switch (dtype) {
    case DType::kFloat64:
      return run(Plain<double>()), true;
    case DType::kFloat32:
      return run(Plain<float>()), true;
    case DType::kBFloat16:
      return run(BFloat()), true;
    case DType::kFloat16:
      return run(HalfType()), true;
    case DType::kInt64:
      return run(Plain<int64_t>()), true;
    case DType::kInt32:
      return run(Plain<int32_t>()), true;
    case DType::kInt16:
      return run(Plain<int16_t>()), true;
    case DType::kInt8:
      return run(Plain<int8_t>()), true;
    case DType::kUInt8:
      return run(Plain<uint8_t>()), true;
    case DType::kUInt16:
      return run(Plain<uint16_t>()), true;
    case DType::kUInt32:
      return run(Plain<uint32_t>()), true;
    case DType::kUInt64:
      return run(Plain<uint64_t>()), true;
    default:
      return false;
  }
}

}  // namespace ringdist::reduction
