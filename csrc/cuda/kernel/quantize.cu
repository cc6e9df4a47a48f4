#include "cuda/kernel/blocks.h"
#include "cuda/kernel/quantize.h"
#include "cuda/kernel/quantize_body.h"

namespace ringdist::gpu {

LaunchError quantize(BlockFormat format, const float* in, const float* from, float* to,
                     int64_t count, Stochastic rounding, uint8_t* out, void* stream) {
  LaunchError error = 0;
  with_format(format, [&]<typename Format>(Format) {
    const Quantizing<Format> body{in, {from, to}, count, rounding, out};
    error = for_each_block(blocks(count, kBlockCount), stream, body);
  });
  return error;
}

LaunchError dequantize(BlockFormat format, const uint8_t* in, bool accumulate, float* out,
                       int64_t count, void* stream) {
  LaunchError error = 0;
  with_format(format, [&]<typename Format>(Format) {
    const Dequantizing<Format> body{in, accumulate, out, count};
    error = for_each_block(blocks(count, kBlockCount), stream, body);
  });
  return error;
}

}  // namespace ringdist::gpu
