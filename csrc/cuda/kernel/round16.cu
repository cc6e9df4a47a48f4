// Launches the kernels of fp16 and bf16.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/round16_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_round16(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  if (coding.code == Code::kHalf)
    return launch(coding, Round16Coder<rounding16::Half>(), calls, stream);
  if (coding.stochastic)
    return launch(coding, Round16Coder<rounding16::StochasticBFloat>(), calls, stream);
  return launch(coding, Round16Coder<rounding16::BFloat>(), calls, stream);
}

template LaunchError launch_round16(KernelCodec, CallSpan<EncodeCall>, void*);
template LaunchError launch_round16(KernelCodec, CallSpan<DecodeCall>, void*);

}  // namespace ringdist::gpu
