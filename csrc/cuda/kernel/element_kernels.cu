// Kernels of cuda/kernel/elements.h.
#include "cuda/kernel/each_element.h"
#include "cuda/kernel/kernels.h"

namespace ringdist::gpu {

LaunchError run(const Elements& call, void* stream) {
  return std::visit([&](const auto& body) { return for_each_element(body, stream); }, call);
}

}  // namespace ringdist::gpu
