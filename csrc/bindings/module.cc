#include <pybind11/gil_safe_call_once.h>

#include <string>

#include "bindings/bind.h"
#include "bindings/bind_errors.h"

namespace py = pybind11;

namespace {

// All but what a first group needs: half of what the module takes to load, so it waits until a name
// is asked for that is not there yet.
void bind_the_rest(const py::module_& module) {
  // Apart, as binding a name asks whether it is there.
  auto rest = py::reinterpret_steal<py::module_>(PyModule_New("torch_ringdist._C"));
  if (!rest) throw py::error_already_set();
  ringdist::bind_codecs(rest);
  ringdist::bind_compress(rest);
  ringdist::bind_info(rest);
  ringdist::bind_local(rest);
  ringdist::bind_named(rest);
  ringdist::bind_plan(rest);
  ringdist::bind_shared_memory(rest);
  ringdist::bind_store(rest);
  const py::object names = module.attr("__dict__");
  if (PyDict_Merge(names.ptr(), rest.attr("__dict__").ptr(), /*override=*/0) != 0)
    throw py::error_already_set();
}

// Python's, for names that are not there. Those that Python itself looks for are none of ours.
py::object attribute(const py::module_& module, const std::string& name) {
  PYBIND11_CONSTINIT static py::gil_safe_call_once_and_store<bool> once;
  if (!name.starts_with("__"))
    once.call_once_and_store_result([&] { return bind_the_rest(module), true; });
  const py::dict names = module.attr("__dict__");
  if (!names.contains(name))
    throw py::attribute_error("module 'torch_ringdist._C' has no attribute '" + name + "'");
  return names[name.c_str()];
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "The native part of torch_ringdist; see _C.pyi.";
  ringdist::bind_errors();
  ringdist::bind_backend(module);
  module.def("__getattr__", [it = py::handle(module)](const std::string& name) {
    return attribute(py::reinterpret_borrow<py::module_>(it), name);
  });
}
