// One function per bind_x.cc; module.cc calls them all, bind_backend first.
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
