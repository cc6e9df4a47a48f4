// Binds the store of an elastic job for threads of Python, and the store of ringdist:// addresses.
// Requests run without the GIL. Those of a BoundedStore block no thread for long.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "bindings/bind.h"
#include "torch/base/errors.h"
#include "torch/bounded_store.h"
#include "torch/ringdist_store.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Deletes the store without the GIL, because its threads may take a second to end.
struct DeletesWithoutGil {
  void operator()(BoundedStore* store) const {
    const py::gil_scoped_release release;
    delete store;
  }
};

}  // namespace

void bind_store(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<RingdistStore, c10d::Store, c10::intrusive_ptr<RingdistStore>>(module, "RingdistStore")
      .def(py::init([](const std::string& host, uint16_t port, int listener, Milliseconds timeout,
                       const TlsFileNames& files) {
             // The socket has an owner before anything is thrown.
             Fd socket = listener < 0 ? Fd() : Fd::open([listener] { return listener; });
             return c10::make_intrusive<RingdistStore>(host, port, std::move(socket), timeout,
                                                       tls_files(files));
           }),
           py::arg("host"), py::arg("port"), py::arg("listener"), py::arg("timeout"),
           py::arg("files"), Release())
      .def_static("serves", &serves_hosted_store, py::arg("port"))
      .def_property_readonly("host", &RingdistStore::host)
      .def_property_readonly("port", &RingdistStore::port);
  py::class_<BoundedStore, std::unique_ptr<BoundedStore, DeletesWithoutGil>>(module, "BoundedStore")
      .def(py::init([](std::string host, uint16_t port, Milliseconds limit,
                       const TlsFileNames& files, bool is_hosted) {
             return new BoundedStore(std::move(host), port, limit, tls_files(files), is_hosted);
           }),
           py::arg("host"), py::arg("port"), py::arg("limit"), py::arg("files") = TlsFileNames(),
           py::arg("is_hosted") = false)
      .def(
          "connect", [](BoundedStore& it, Milliseconds timeout) { throw_if(it.connect(timeout)); },
          py::arg("timeout"), Release())
      .def(
          "set",
          [](BoundedStore& it, const std::string& key, const std::string& value) {
            throw_if(it.set(key, value));
          },
          py::arg("key"), py::arg("value"), Release())
      .def(
          "find", [](BoundedStore& it, const std::string& key) { return value_of(it.find(key)); },
          py::arg("key"), Release())
      .def(
          "add",
          [](BoundedStore& it, const std::string& key, int64_t amount) {
            return value_of(it.add(key, amount));
          },
          py::arg("key"), py::arg("amount"), Release())
      .def(
          "count", [](BoundedStore& it, const std::string& key) { return value_of(it.count(key)); },
          py::arg("key"), Release())
      .def(
          "compare_set",
          [](BoundedStore& it, const std::string& key, const std::string& expected,
             const std::string& desired) {
            return value_of(it.compare_set(key, expected, desired));
          },
          py::arg("key"), py::arg("expected"), py::arg("desired"), Release());
}

}  // namespace ringdist
