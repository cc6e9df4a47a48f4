// Binds tensors in shared memory. begin_sharing and end_sharing switch the allocator of the calling
// thread.
#include "bindings/bind.h"
#include "torch/shared_allocator.h"

namespace ringdist {

void bind_shared_memory(pybind11::module_& module) {
  module.def("begin_sharing", &begin_sharing);
  module.def("end_sharing", &end_sharing);
}

}  // namespace ringdist
