#include "cuda/kernel/kernels.h"

#include "cuda/kernel/families.h"

namespace ringdist::gpu {
namespace {

constexpr LaunchError kUnknownCode = 1;  // cudaErrorInvalidValue

template <typename Call>
LaunchError launch_any(Coding coding, const Call& call, void* stream) {
  switch (coding.code) {
    case Code::kHalf:
    case Code::kBFloat:
      return launch_round16(coding, call, stream);
    case Code::kOnebit:
      return launch_sign(coding, call, stream);
    case Code::kTopk:
    case Code::kRandomk:
      return launch_sparse(coding, call, stream);
    case Code::kLossless:
      return launch_lossless(coding, call, stream);
    case Code::kFp8E4M3:
    case Code::kFp8E5M2:
    case Code::kInt8:
    case Code::kInt4:
    case Code::kInt2:
      return launch_quantized(coding, call, stream);
  }
  return kUnknownCode;
}

}  // namespace

LaunchError encode(Coding coding, const EncodeCall& call, void* stream) {
  return launch_any(coding, call, stream);
}

LaunchError decode(Coding coding, const DecodeCall& call, void* stream) {
  return launch_any(coding, call, stream);
}

}  // namespace ringdist::gpu
