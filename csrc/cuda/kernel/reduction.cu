// Launches the kernels of plain reductions. A reduction that does not exist gives
// cudaErrorInvalidValue.
#include "cuda/kernel/each_element.h"
#include "cuda/kernel/kernels.h"
#include "cuda/kernel/reduction.h"

namespace ringdist::gpu {
namespace {

struct Launch {
  const ReduceCall& call;
  int64_t count;
  void* stream;
  LaunchError error = cudaErrorInvalidValue;

  template <typename Type, typename Op>
  void operator()(Type, Op) {
    error =
        for_each_element(Reduction<Type, Op>{call.sources, call.out, call.divisor, count}, stream);
  }
};

}  // namespace

LaunchError reduce(const ReduceCall& call, void* stream) {
  const ReduceLoop loop = reduce_loop(call.dtype, call.op, static_cast<size_t>(call.count));
  Launch launch{call, static_cast<int64_t>(loop.count), stream};
  with_reduction(loop, call.divisor, [&](auto type, auto op) { launch(type, op); });
  return launch.error;
}

}  // namespace ringdist::gpu
