// Binds functions that show state: info, options, stats and dump.
#include <torch/headeronly/version.h>

#include <string>
#include <torch/csrc/distributed/c10d/control_plane/Handlers.hpp>

#include "algorithm/schedule.h"
#include "base/config.h"
#include "base/trace_file.h"
#include "bindings/bind.h"
#include "codec/codec.h"
#include "engine/communicator.h"
#include "engine/device/devices.h"
#include "engine/report_client.h"
#include "os/main_thread_stack.h"
#include "os/network_interfaces.h"
#include "os/shared_block_registry.h"
#include "torch/base/errors.h"
#include "torch/process_context.h"
#include "transport/registry.h"
#include "transport/ucx_plugin.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Returns the version and origin of UCX, or why it was not loaded.
py::dict ucx_info(const Config& config) {
  py::dict out;
  const bool system = config.ucx == "system";
  auto plugin = load_ucx(system);
  out["version"] = plugin.ok() ? plugin.value()->info().version : "";
  out["path"] = plugin.ok() ? plugin.value()->info().path : "";
  out["origin"] = plugin.ok() ? config.ucx : "not loaded: " + plugin.error().message();
  return out;
}

// Returns the architectures of the CUDA kernels, or why the library was not loaded. Does not look
// for devices, because that would start CUDA in this process.
py::dict cuda_info() {
  py::dict out;
  const auto library = load_cuda();
  out["built_for"] = library.ok() ? library.value()->built_for : "";
  out["state"] = library.ok() ? "ok" : "not loaded: " + library.error().message();
  return out;
}

// Returns the devices of this process, and why there are not more. Starts CUDA.
py::tuple cuda_devices() {
  const auto library = load_cuda();
  throw_if(library.error());
  DeviceList found;
  {
    const py::gil_scoped_release release;
    found = library.value()->devices();
  }
  py::list devices;
  for (const DeviceInfo& device : found.devices)
    devices.append(py::make_tuple(device.name, device.capability, device.bytes, device.address));
  return py::make_tuple(devices, found.problem);
}

// Returns (name, description, state) for each transport. The state is "ok" or the reason why it
// cannot be used.
py::list transport_rows(const Config& config) {
  TransportConfig transport_config;
  transport_config.system_ucx = config.ucx == "system";
  py::list out;
  for (const TransportRow& row : transports()) {
    if (!row.of_processes) continue;  // the others are for tests
    const Error error = row.viable(transport_config);
    out.append(py::make_tuple(std::string(row.name), std::string(row.description),
                              error ? error.message() : "ok"));
  }
  return out;
}

// Returns (name, value, meaning) for each limit.
py::list limit_rows(const Config& config) {
  const TransportConfig defaults;
  py::list out;
  const auto add = [&](const char* name, const std::string& value, const char* meaning) {
    out.append(py::make_tuple(name, value, meaning));
  };
  add("transport memory", std::to_string(config.memory) + " bytes",
      "what peers may have on their way to this process (RINGDIST_MEMORY)");
  add("largest message", std::to_string(defaults.max_payload) + " bytes",
      "a segment is never longer");
  add("eager window", std::to_string(Communicator::eager_window(config)) + " bytes",
      "what a peer may send to this rank before it has called the operation");
  return out;
}

// Returns torch's names of all operations.
py::list operation_names() {
  py::list out;
  for (size_t i = 0; i < kCollectives; ++i)
    if (const auto kind = static_cast<Collective>(i); kind != Collective::kPointToPoint)
      out.append(std::string(collective_name(kind)));
  out.append("send");
  out.append("recv");
  return out;
}

// Returns name and address of the interfaces that RINGDIST_SOCKET_IFNAME selects, or why there are
// none.
py::dict interfaces_info(const Config& config) {
  py::list selected;
  std::string problem;
  if (!config.socket_ifname.empty()) {
    auto all = list_interfaces();
    auto found = all.ok() ? select_interfaces(config.socket_ifname, all.value()) : std::move(all);
    if (found.ok())
      for (const NetworkInterface& one : found.value())
        selected.append(py::make_tuple(one.name, one.address));
    problem = found.ok() ? "" : found.error().message();
  }
  py::dict out;
  out["selected"] = selected;
  out["problem"] = problem;
  return out;
}

// Returns everything that torch_ringdist.info() shows of the native part.
py::dict info() {
  auto config = Config::from_environment({});
  throw_if(config.error());
  py::dict out;
  out["torch"] = std::to_string(TORCH_VERSION_MAJOR) + "." + std::to_string(TORCH_VERSION_MINOR);
  out["version"] = RINGDIST_VERSION;
  out["ucx"] = ucx_info(config.value());
  out["cuda"] = cuda_info();
  out["interfaces"] = interfaces_info(config.value());
  out["transports"] = transport_rows(config.value());
  py::list algorithm_rows;
  for (const Algorithm& row : algorithms())
    algorithm_rows.append(py::make_tuple(std::string(row.name), std::string(row.description)));
  out["algorithms"] = algorithm_rows;
  py::list codec_rows;
  for (const CodecRow& row : codecs()) {
    std::string description(row.description);
    if (!row.parameters.empty()) description += "; after ':' " + std::string(row.parameters);
    codec_rows.append(py::make_tuple(std::string(row.name), description));
  }
  out["codecs"] = codec_rows;
  out["operations"] = operation_names();
  out["limits"] = limit_rows(config.value());
  py::list variables;
  for (const Config::Variable& v : config.value().variables())
    variables.append(
        py::make_tuple(v.name, v.value, v.default_value, v.meaning, v.set ? "set" : "default"));
  out["variables"] = variables;
  return out;
}

// Returns the options of a group with type, default and meaning.
py::list options() {
  auto config = Config::parse({}, {});
  throw_if(config.error());
  py::list out;
  for (const Config::Variable& v : config.value().variables())
    out.append(py::make_tuple(v.field, v.type, v.default_value, v.meaning));
  return out;
}

// Returns the counters of this process. They are 0 if it has no context.
py::dict stats() {
  py::dict out;
  auto context = existing_process_context();
  static const Statistics nothing_yet;
  const Statistics& s = context ? context->statistics() : nothing_yet;
  for (const CounterRow& row : kCounters)
    out[py::str(row.name.data(), row.name.size())] = (s.*row.counter).load();
  const SharedBlockRegistry::Figures shared = SharedBlockRegistry::of_process().figures();
  out["shared_tensors"] = shared.blocks;
  out["shared_bytes"] = shared.bytes;
  out["bytes_read_in_place"] = shared.bytes_read;
  return out;
}

// Returns a description of all groups and their open ops, for debugging. Call it without the GIL.
std::string dump() {
  auto context = existing_process_context();
  return context ? context->dump() : "ringdist: no group has been created in this process\n";
}

// Lets other processes read the stack of the main thread. See main_thread_stack(). A child after
// fork() has to call it again.
void enable_stack() {
  const StackChannel channel = value_of(main_thread_stack_channel());
  py::module_::import("faulthandler")
      .attr("register")(channel.signal_number, py::arg("file") = channel.descriptor,
                        py::arg("all_threads") = false, py::arg("chain") = false);
  throw_if(enable_main_thread_stack());
}

// Sends a request to the process that listens at the socket, and returns the texts of its answer.
// Both have the key of the job, or certificates.
std::vector<py::bytes> report_of(const std::string& unix_name, const TlsFileNames& files,
                                 int request, const std::string& body, double seconds) {
  const std::chrono::duration<double> limit(seconds);
  std::vector<std::string> texts;
  {
    py::gil_scoped_release release;
    texts = value_of(read_report(unix_name, tls_files(files), static_cast<FrameType>(request),
                                 {reinterpret_cast<const std::byte*>(body.data()), body.size()},
                                 Clock::now() + std::chrono::duration_cast<Duration>(limit)));
  }
  return {texts.begin(), texts.end()};  // names that users chose may be no UTF-8
}

// Starts a recording of this process, which need not have a group. Returns false if it is recorded
// already.
bool start_trace(const std::string& path, int rank, const std::string& name) {
  if (process_is_recorded()) return false;  // possibly to the same file
  auto file = TraceFile::create(path, rank, name);
  throw_if(file.error());
  if (record_process(file.value())) return true;
  (void)std::remove(path.c_str());
  return false;
}

}  // namespace

void bind_info(py::module_& module) {
  module.def("info", &info);
  module.def("cuda_devices", &cuda_devices);
  module.def("options", &options);
  module.def("stats", &stats);
  using Release = py::call_guard<py::gil_scoped_release>;
  module.def("report_of", &report_of, py::arg("name"), py::arg("files"), py::arg("kind"),
             py::arg("body"), py::arg("limit"));
  module.def("dump", &dump, Release());
  // The server of torch.distributed.debug, and other clients of a c10d WorkerServer, request it by
  // this name.
  c10d::control_plane::registerHandler("ringdist_dump", [](const auto&, auto& response) {
    response.setContent(dump(), "text/plain");
    response.setStatus(200);
  });
  module.def("enable_main_thread_stack", &enable_stack);
  module.def("start_trace", &start_trace, py::arg("path"), py::arg("rank"), py::arg("name"),
             Release());
  module.def("stop_trace", [] { (void)record_process(nullptr); }, Release());
}

}  // namespace ringdist
