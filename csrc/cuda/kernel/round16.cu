// Kernels of fp16 and bf16.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/round16_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_round16(Coding coding, const Call& call, void* stream) {
  if (coding.code == Code::kHalf)
    return launch(coding, Round16Coder<rounding16::Half>(), call, stream);
  if (coding.stochastic)
    return launch(coding, Round16Coder<rounding16::StochasticBFloat>(), call, stream);
  return launch(coding, Round16Coder<rounding16::BFloat>(), call, stream);
}

template LaunchError launch_round16(Coding, const EncodeCall&, void*);
template LaunchError launch_round16(Coding, const DecodeCall&, void*);

}  // namespace ringdist::gpu
