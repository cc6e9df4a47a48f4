// Launches the kernels of topk and randomk.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/sparse_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_sparse(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  if (coding.code == Code::kTopk) return launch(coding, TopkCoder{{coding.k}}, calls, stream);
  return launch(coding, RandomkCoder{{coding.k}}, calls, stream);
}

template LaunchError launch_sparse(KernelCodec, CallSpan<EncodeCall>, void*);
template LaunchError launch_sparse(KernelCodec, CallSpan<DecodeCall>, void*);

}  // namespace ringdist::gpu
