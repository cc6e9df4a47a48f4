// Kernels of topk and randomk.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/randomk_coder.h"
#include "cuda/kernel/topk_coder.h"

namespace ringdist::gpu {
namespace {

template <typename Call>
LaunchError launch_any(Coding coding, const Call& call, void* stream) {
  if (coding.code == Code::kTopk) return launch(coding, TopkCoder{{coding.k}}, call, stream);
  return launch(coding, RandomkCoder{{coding.k}}, call, stream);
}

}  // namespace

LaunchError launch_sparse(Coding coding, const EncodeCall& call, void* stream) {
  return launch_any(coding, call, stream);
}
LaunchError launch_sparse(Coding coding, const DecodeCall& call, void* stream) {
  return launch_any(coding, call, stream);
}

}  // namespace ringdist::gpu
