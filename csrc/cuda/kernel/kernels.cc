#include "cuda/kernel/kernels.h"

#include "cuda/kernel/families.h"

namespace ringdist::gpu {
namespace {

constexpr LaunchError kUnknownCode = 1;  // cudaErrorInvalidValue

template <typename Call>
LaunchError launch_any(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  switch (coding.code) {
    case Code::kHalf:
    case Code::kBFloat:
      return launch_round16(coding, calls, stream);
    case Code::kOnebit:
      return launch_sign(coding, calls, stream);
    case Code::kTopk:
    case Code::kRandomk:
      return launch_sparse(coding, calls, stream);
    case Code::kLossless:
      return launch_lossless(coding, calls, stream);
    case Code::kFp8E4M3:
    case Code::kFp8E5M2:
    case Code::kInt8:
    case Code::kInt4:
    case Code::kInt2:
      return launch_quantized(coding, calls, stream);
  }
  return kUnknownCode;
}

}  // namespace

LaunchError encode(KernelCodec coding, CallSpan<EncodeCall> calls, void* stream) {
  return launch_any(coding, calls, stream);
}

LaunchError decode(KernelCodec coding, CallSpan<DecodeCall> calls, void* stream) {
  return launch_any(coding, calls, stream);
}

}  // namespace ringdist::gpu
