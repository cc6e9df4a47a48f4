#include "kernel/reduce.h"

#include "base/check.h"
#include "kernel/reduce_isa.h"
#include "kernel/reduce_loop.h"
#include "kernel/reduce_loops.h"

namespace ringdist {
namespace {

using reduction::Sources;

// One function per type (noinline, here and below) keeps the compiler from optimising all loops at
// once.
template <typename Type>
[[gnu::noinline]] void run(ReduceOp op, std::byte* out, Sources sources, size_t count,
                           int64_t divisor) {
  reduction::reduce_type<Type>(op, out, sources, count, divisor);
}

template <typename Type>
[[gnu::noinline]] void run_bits(ReduceOp op, std::byte* out, Sources sources, size_t count) {
  switch (op) {
    case ReduceOp::kBand:
      return reduction::reduce_op<Type, reduction::And>(out, sources, count, 1);
    case ReduceOp::kBor:
      return reduction::reduce_op<Type, reduction::Or>(out, sources, count, 1);
    default:
      return reduction::reduce_op<Type, reduction::Xor>(out, sources, count, 1);
  }
}

template <typename Type>
[[gnu::noinline]] void run_product(std::byte* out, Sources sources, size_t count) {
  reduction::reduce_op<Type, reduction::Product>(out, sources, count, 1);
}

// Runs loops that exist once for all instruction sets.
void run_rare(const ReduceLoop& loop, std::byte* out, Sources sources, int64_t divisor) {
  using namespace reduction;
  switch (loop.dtype) {
    case DType::kBytes:
      return run_bits<Plain<uint8_t>>(loop.op, out, sources, loop.count);
    case DType::kBool:
      return run_bits<Bool>(loop.op, out, sources, loop.count);
    case DType::kComplex32:
      return run_product<ComplexHalf>(out, sources, loop.count);
    case DType::kComplex64:
      return run_product<Plain<Complex<float>>>(out, sources, loop.count);
    case DType::kComplex128:
      return run_product<Plain<Complex<double>>>(out, sources, loop.count);
    case DType::kFloat8E4M3FN:
      return run<OutOfLine<Float8E4M3>>(loop.op, out, sources, loop.count, divisor);
    case DType::kFloat8E5M2:
      return run<OutOfLine<Float8E5M2>>(loop.op, out, sources, loop.count, divisor);
    default:
      check_failed("no loop for this dtype", std::source_location::current());
  }
}

}  // namespace

void reduce_baseline(DType dtype, ReduceOp op, std::byte* out, Sources sources, size_t count,
                     int64_t divisor) {
  const ReduceLoop loop = reduce_loop(dtype, op, count);
  const bool done = reduction::with_type<reduction::Half>(loop.dtype, [&]<typename Type>(Type) {
    run<Type>(loop.op, out, sources, loop.count, divisor);
  });
  if (!done) run_rare(loop, out, sources, divisor);
}

void reduce(DType dtype, ReduceOp op, std::byte* out, Sources sources, size_t count,
            int64_t divisor) {
  check(is_reducible(dtype, op), "reduce() of a dtype that does not have the operation");
  check(!sources.empty() && divisor >= 1, "reduce() without a source or with a divisor below 1");
  static const ReduceFunction best = [] {
    if (const auto widest = reduce_avx512()) return widest;
    const auto wide = reduce_avx2();
    return wide != nullptr ? wide : reduce_baseline;
  }();
  best(dtype, op, out, sources, count, divisor);
}

}  // namespace ringdist
