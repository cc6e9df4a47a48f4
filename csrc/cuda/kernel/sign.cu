// Kernels of onebit.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/sign_coder.h"

namespace ringdist::gpu {

LaunchError launch_sign(Coding coding, const EncodeCall& call, void* stream) {
  return launch(coding, SignCoder(), call, stream);
}
LaunchError launch_sign(Coding coding, const DecodeCall& call, void* stream) {
  return launch(coding, SignCoder(), call, stream);
}

}  // namespace ringdist::gpu
