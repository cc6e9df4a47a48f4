// Launches the kernels of onebit.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/sign_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_sign(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  return launch(coding, SignCoder(), calls, stream);
}

template LaunchError launch_sign(KernelCodec, CallSpan<EncodeCall>, void*);
template LaunchError launch_sign(KernelCodec, CallSpan<DecodeCall>, void*);

}  // namespace ringdist::gpu
