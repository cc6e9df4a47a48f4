// Binds named calls: NamedGroup.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <string_view>

#include "bindings/bind.h"
#include "torch/backend.h"
#include "torch/base/errors.h"
#include "torch/named/named_group.h"

namespace py = pybind11;

namespace ringdist {
namespace {

using Reducing = NamedGroup::ReduceOptions;

// Converts the arguments of an allreduce. Raises an error if `op` is unknown.
Reducing reducing(const std::string& op, double prescale, double postscale) {
  for (const ReduceOp one : all_reduce_ops())
    if (!op.empty() && traits_of(one).horovod_name == op) return {one, prescale, postscale};
  std::string names;
  for (const ReduceOp one : all_reduce_ops())
    if (const std::string_view name = traits_of(one).horovod_name; !name.empty())
      names += (names.empty() ? "" : ", ") + std::string(name);
  throw_error(Error(ErrorKind::kInvalidArgument,
                    "ringdist: op must be one of " + names + ", got '" + op + "'"));
}

// Creates a named group on the ranks of a backend. `warn_after` is in seconds.
std::shared_ptr<NamedGroup> make_group(const ProcessGroupRing& backend, size_t cache_capacity,
                                       int64_t fusion_bytes, int batches_in_flight,
                                       double warn_after) {
  NegotiationOptions options;
  options.order = {cache_capacity, fusion_bytes, batches_in_flight};
  options.warn_after =
      std::chrono::duration_cast<Duration>(std::chrono::duration<double>(warn_after));
  return std::make_shared<NamedGroup>(backend.communicator(), options);
}

}  // namespace

void bind_named(py::module_& module) {
  using Release = py::call_guard<py::gil_scoped_release>;
  py::class_<NamedWork, std::shared_ptr<NamedWork>>(module, "NamedWork")
      .def("release_name", &NamedWork::release_name, Release())
      .def("poll", &NamedWork::poll, Release())
      .def("wait", &NamedWork::wait, Release());
  py::class_<NamedGroup, std::shared_ptr<NamedGroup>>(module, "NamedGroup")
      .def(py::init(&make_group), py::arg("backend"), py::arg("cache_capacity") = 1024,
           py::arg("fusion_bytes") = int64_t{64} << 20, py::arg("batches_in_flight") = 2,
           py::arg("warn_after") = 60.0, Release())
      .def(
          "allreduce",
          [](NamedGroup& self, const std::string& name, const Tensors& inputs,
             const Tensors& outputs, const std::string& op, double prescale, double postscale,
             bool will_wait) {
            Reducing how = reducing(op, prescale, postscale);
            how.will_wait = will_wait;
            return self.allreduce(name, inputs, outputs, how);
          },
          py::arg("name"), py::arg("inputs"), py::arg("outputs"), py::arg("op"),
          py::arg("prescale") = 1.0, py::arg("postscale") = 1.0, py::arg("will_wait") = false,
          Release())
      .def("allgather", &NamedGroup::allgather, py::arg("name"), py::arg("inputs"),
           py::arg("manner") = "", Release())
      .def("broadcast", &NamedGroup::broadcast, py::arg("name"), py::arg("input"),
           py::arg("output"), py::arg("root"), Release())
      .def("alltoall", &NamedGroup::alltoall, py::arg("name"), py::arg("input"), py::arg("splits"),
           Release())
      .def(
          "reducescatter",
          [](NamedGroup& self, const std::string& name, const Tensors& inputs,
             const std::string& op, double prescale, double postscale) {
            return self.reducescatter(name, inputs, reducing(op, prescale, postscale));
          },
          py::arg("name"), py::arg("inputs"), py::arg("op"), py::arg("prescale") = 1.0,
          py::arg("postscale") = 1.0, Release())
      .def("barrier", &NamedGroup::barrier, py::arg("name"), Release())
      .def("join", &NamedGroup::join, py::arg("device") = py::none(), Release())
      .def("tune", &NamedGroup::tune, py::arg("fusion_bytes"), py::arg("batches_in_flight"),
           Release())
      .def("start_timeline", &NamedGroup::start_timeline, py::arg("path"),
           py::arg("mark_cycles") = false, Release())
      .def(
          "stop_timeline",
          [](NamedGroup& self, double seconds) {
            return self.stop_timeline(Milliseconds(static_cast<int64_t>(seconds * 1000)));
          },
          py::arg("timeout"), Release())
      .def("close", &NamedGroup::close, Release());
}

}  // namespace ringdist
