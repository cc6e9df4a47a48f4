#include "cuda/kernel/blocks.h"
#include "cuda/kernel/sign.h"
#include "cuda/kernel/sign_body.h"

namespace ringdist::gpu {

LaunchError take_signs(const float* in, const float* from, float* to, int64_t count, uint8_t* out,
                       void* stream) {
  const TakingSigns body{in, {from, to}, count, out};
  return for_each_block(blocks(count, kSignCount), stream, body);
}

LaunchError read_signs(const uint8_t* in, bool accumulate, float* out, int64_t count,
                       int* malformed, void* stream) {
  const ReadingSigns body{in, accumulate, out, count, malformed};
  return for_each_block(blocks(count, kSignCount), stream, body);
}

}  // namespace ringdist::gpu
