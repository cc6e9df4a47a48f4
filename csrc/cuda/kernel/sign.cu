// Kernels of onebit.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/sign_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_sign(Coding coding, const Call& call, void* stream) {
  return launch(coding, SignCoder(), call, stream);
}

template LaunchError launch_sign(Coding, const EncodeCall&, void*);
template LaunchError launch_sign(Coding, const DecodeCall&, void*);

}  // namespace ringdist::gpu
