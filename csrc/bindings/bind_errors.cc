// What Python raises: exceptions of two kinds for an argument, and KeyboardInterrupt in a wait.
#include "bindings/bind_errors.h"

#include "bindings/bind.h"
#include "torch/argument_error.h"
#include "torch/work/interrupts.h"

namespace py = pybind11;

namespace ringdist {
namespace {

void raise(const char* name, const c10::Error& error) {
  const py::object type = py::module_::import("torch_ringdist._errors").attr(name);
  PyErr_SetString(type.ptr(), error.what_without_backtrace());
}

// Asked before PyTorch's own translator, which knows only the classes that these derive from.
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

// Returns the name of the exception that this thread handles (in an `except` or `finally`, or at
// the exit of a script that one has ended); "" if there is none.
std::string name_of_exception() {
  const py::gil_scoped_acquire gil;
  return py::cast<std::string>(
      py::module_::import("torch_ringdist._errors").attr("handled_exception")());
}

}  // namespace

void bind_errors() {
  py::register_exception_translator(&translate);
  set_interrupt_check(&check_signals);
  set_exception_check(&name_of_exception);
}

}  // namespace ringdist
