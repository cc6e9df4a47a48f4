// Defines the Python module torch_ringdist._C. Groups and the translation of errors are bound at
// import, and all else when a missing name is looked up. From the import on, waits of C++ run
// Python's signal handlers.
#include <pybind11/gil_safe_call_once.h>

#include <string>

#include "bindings/bind.h"
#include "torch/base/errors.h"
#include "torch/shared_allocator.h"
#include "torch/work/interrupts.h"

namespace py = pybind11;

namespace ringdist {
namespace {

void raise(const char* name, const c10::Error& error) {
  const py::object type = py::module_::import("torch_ringdist._errors").attr(name);
  PyErr_SetString(type.ptr(), error.what_without_backtrace());
}

// Runs before PyTorch's own translator, which handles only the base classes of these exceptions.
// NOLINTNEXTLINE(performance-unnecessary-value-param): pybind11 gives the type
void translate(std::exception_ptr thrown) {
  try {
    if (thrown) std::rethrow_exception(thrown);
  } catch (const ArgumentError& error) {
    raise("ArgumentError", error);
  } catch (const NotSupportedError& error) {
    raise("NotSupportedError", error);
  }
}

// Runs the Python functions of signals that have come, and throws what they raise.
void check_signals() {
  if (Py_IsInitialized() == 0) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Returns the name of the exception that this thread handles, or that ends the script. Returns ""
// if there is none.
std::string name_of_exception() {
  const py::gil_scoped_acquire gil;
  return py::cast<std::string>(
      py::module_::import("torch_ringdist._errors").attr("handled_exception")());
}

// Translates the exceptions of arguments, and has waits run Python's signal handlers.
void bind_errors() {
  py::register_exception_translator(&translate);
  set_interrupt_check(&check_signals);
  set_exception_check(&name_of_exception);
}

}  // namespace
}  // namespace ringdist

namespace {

// Binds everything that the first group does not need. This is half of the module's load time, so
// it waits until a missing name is looked up.
void bind_the_rest(const py::module_& module) {
  // A separate module, because binding a name looks it up.
  auto rest = py::reinterpret_steal<py::module_>(PyModule_New("torch_ringdist._C"));
  if (!rest) throw py::error_already_set();
  ringdist::bind_codecs(rest);
  ringdist::bind_compress(rest);
  ringdist::bind_info(rest);
  ringdist::bind_local(rest);
  ringdist::bind_named(rest);
  ringdist::bind_plan(rest);
  rest.def("begin_sharing", &ringdist::begin_sharing);
  rest.def("end_sharing", &ringdist::end_sharing);
  ringdist::bind_store(rest);
  const py::object names = module.attr("__dict__");
  if (PyDict_Merge(names.ptr(), rest.attr("__dict__").ptr(), /*override=*/0) != 0)
    throw py::error_already_set();
}

// Implements __getattr__ of the module for missing names. Names that Python itself looks up are
// ignored.
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
