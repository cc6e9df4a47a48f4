#include "bindings/bind.h"
#include "bindings/bind_errors.h"

PYBIND11_MODULE(_C, module) {
  module.doc() = "The native part of torch_ringdist; see _C.pyi.";
  ringdist::bind_backend(module);
  ringdist::bind_codecs(module);
  ringdist::bind_compress(module);
  ringdist::bind_errors();
  ringdist::bind_info(module);
  ringdist::bind_local(module);
  ringdist::bind_named(module);
  ringdist::bind_plan(module);
  ringdist::bind_shared_memory(module);
}
