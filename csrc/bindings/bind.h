// Bindings of the module torch_ringdist._C. Each bind_*.cc defines one function. module.cc calls
// all of them, bind_backend first.
#pragma once

#include <torch/csrc/utils/pybind.h>

namespace ringdist {

void bind_backend(pybind11::module_& module);
void bind_codecs(pybind11::module_& module);
void bind_compress(pybind11::module_& module);
void bind_info(pybind11::module_& module);
void bind_local(pybind11::module_& module);
void bind_named(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_shared_memory(pybind11::module_& module);
void bind_store(pybind11::module_& module);

}  // namespace ringdist
