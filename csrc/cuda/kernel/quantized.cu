// Launches the kernels of fp8, int8, int4 and int2.
#include "cuda/kernel/families.h"
#include "cuda/kernel/launch.h"
#include "cuda/kernel/quantized_coder.h"

namespace ringdist::gpu {

template <typename Call>
LaunchError launch_quantized(KernelCodec coding, CallSpan<Call> calls, void* stream) {
  switch (coding.code) {
    case Code::kFp8E4M3:
      return launch(coding, QuantizedCoder<Fp8<E4M3>>(), calls, stream);
    case Code::kFp8E5M2:
      return launch(coding, QuantizedCoder<Fp8<E5M2>>(), calls, stream);
    case Code::kInt8:
      return launch(coding, QuantizedCoder<Int8>{coding.stochastic}, calls, stream);
    case Code::kInt4:
      return launch(coding, QuantizedCoder<Signed<4>>(), calls, stream);
    default:
      return launch(coding, QuantizedCoder<Signed<2>>(), calls, stream);
  }
}

template LaunchError launch_quantized(KernelCodec, CallSpan<EncodeCall>, void*);
template LaunchError launch_quantized(KernelCodec, CallSpan<DecodeCall>, void*);

}  // namespace ringdist::gpu
