// Tensors in shared memory: where the calling thread allocates, and how much there is.
#include "bindings/bind.h"
#include "torch/shared_allocator.h"

namespace ringdist {

void bind_shared_memory(pybind11::module_& module) {
  module.def("begin_sharing", &begin_sharing);
  module.def("end_sharing", &end_sharing);
}

}  // namespace ringdist
