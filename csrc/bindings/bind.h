// Bindings of the module torch_ringdist._C. Each bind_*.cc defines one function. module.cc calls
// bind_backend at import. It calls the others when a missing name is looked up first. Each is
// called once, with the GIL. Types and docs of the bound names are in torch_ringdist/_C.pyi.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <array>
#include <string>

#include "base/config.h"

namespace ringdist {

// The members of TlsFiles, as Python passes them.
using TlsFileNames = std::array<std::string, 4>;
inline TlsFiles tls_files(const TlsFileNames& names) {
  return {names[0], names[1], names[2], names[3]};
}

void bind_backend(pybind11::module_& module);
void bind_codecs(pybind11::module_& module);
void bind_compress(pybind11::module_& module);
void bind_info(pybind11::module_& module);
void bind_local(pybind11::module_& module);
void bind_named(pybind11::module_& module);
void bind_plan(pybind11::module_& module);
void bind_store(pybind11::module_& module);

}  // namespace ringdist
