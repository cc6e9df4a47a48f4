// Defines the kernels of cuda/kernel/elements.h.
#include "cuda/kernel/each_element.h"
#include "cuda/kernel/kernels.h"

namespace ringdist::gpu {

LaunchError run(CallSpan<Elements> calls, void* stream) {
  return with_bodies(calls, [&](const auto& body) { return launch(body, stream); });
}

}  // namespace ringdist::gpu
