#include "kernel/reduce.h"

#include "base/check.h"
#include "kernel/reduce_isa.h"
#include "kernel/reduce_loops.h"

namespace ringdist {
namespace {

// noinline: one function per type, so that the compiler need not treat all loops at once.
template <typename Type>
[[gnu::noinline]] void run(ReduceOp op, std::byte* out, reduction::Sources sources, size_t count,
                           int64_t divisor) {
  reduction::reduce_type<Type>(op, out, sources, count, divisor);
}

}  // namespace

void reduce_baseline(DType dtype, ReduceOp op, std::byte* out,
                     std::span<const std::byte* const> sources, size_t count, int64_t divisor) {
  reduction::with_type<reduction::Half>(
      dtype, [&]<typename Type>(Type) { run<Type>(op, out, sources, count, divisor); });
}

void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> sources,
            size_t count, int64_t divisor) {
  check(!sources.empty() && divisor >= 1, "reduce() without a source or with a divisor below 1");
  static const ReduceFunction best = reduce_avx2() != nullptr ? reduce_avx2() : reduce_baseline;
  best(dtype, op, out, sources, count, divisor);
}

}  // namespace ringdist
