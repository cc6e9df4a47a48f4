#include "cuda/kernel/blocks.h"
#include "cuda/kernel/round16.h"
#include "cuda/kernel/round16_body.h"

namespace ringdist::gpu {

LaunchError round16(Type16 type, const float* in, const float* from, float* to, int64_t count,
                    Stochastic rounding, uint16_t* out, void* stream) {
  const auto launch = [&]<typename Type>(Type) {
    const Rounding<Type> body{in, {from, to}, count, rounding.key, out};
    return for_each_block(blocks(count, kRoundBlock), stream, body);
  };
  if (type == Type16::kHalf) return launch(rounding16::Half());
  return rounding.on ? launch(rounding16::StochasticBFloat()) : launch(rounding16::BFloat());
}

LaunchError widen16(Type16 type, const uint16_t* in, bool accumulate, float* out, int64_t count,
                    void* stream) {
  const auto launch = [&]<typename Type>(Type) {
    const Widening<Type> body{in, accumulate, out, count};
    return for_each_block(blocks(count, kRoundBlock), stream, body);
  };
  return type == Type16::kHalf ? launch(rounding16::Half()) : launch(rounding16::BFloat());
}

}  // namespace ringdist::gpu
