// Binds groups: create_backend, ProcessGroupRing and shutdown.
#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <tuple>
#include <vector>

#include "algorithm/schedule.h"
#include "base/log.h"
#include "bindings/bind.h"
#include "bindings/costs.h"
#include "codec/residual.h"
#include "engine/device/devices.h"
#include "torch/backend.h"
#include "torch/base/errors.h"
#include "torch/process_context.h"
#include "torch/ringdist_store.h"
#include "torch/torch_store.h"
#include "torch/work/interrupts.h"
#include "transport/registry.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Logs a lossy codec that applies to all sums, once. Such a setting is easily forgotten.
void tell_of_codec(const CodecPair& codecs, const Config& config, bool by_program) {
  if (codecs.contribution->exact() && codecs.result->exact()) return;
  const bool has_feedback = feedback_by_default(codecs);
  if (by_program && !has_feedback) return;
  static std::once_flag once;
  std::call_once(once, [&] {
    log(LogLevel::kWarn,
        (by_program ? "Options(codec='" + config.codec + "')" : "RINGDIST_CODEC=" + config.codec) +
            ": sums and averages of " + std::to_string(kMinCompressed) +
            " floats or more are compressed, gradients or not, without error feedback" +
            (has_feedback
                 ? ", which this codec needs: what it loses is lost for good. Here take one of 8 "
                   "bits or more; for gradients, torch_ringdist.ddp.compress()"
                 : ""));
  });
}

// Python function that reads costs from a file. It raises an exception if the file is invalid.
using ReadCosts = std::function<CostNumbers(const std::string&)>;

// Reads the costs of links from a file. Returns defaults if there is no file or no function. Takes
// the GIL for the call. Error kInvalidArgument: the file is invalid. Other Python exceptions pass
// through.
Result<GroupCosts> read_costs(const std::string& file, const ReadCosts& read) {
  GroupCosts out;
  if (file.empty() || !read) return out;
  const py::gil_scoped_acquire gil;
  try {
    out.constants = costs_of(read(file));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_ValueError)) throw;  // not an error of the file, but an interrupt
    return Error(ErrorKind::kInvalidArgument, py::str(error.value()));
  }
  out.file = file;
  return out;
}

// Returns true for names of this host, which other hosts cannot use.
bool is_own(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

// State of the process that a group needs, apart from its members and their store.
struct OfProcess {
  std::shared_ptr<Context> context;
  CommunicatorOptions options;
  CodecPair codecs;
};

// Creates that state. `host` is the host of the store, which determines the network interface.
Result<OfProcess> of_process(const std::string& host, int size,
                             const std::map<std::string, std::string>& options,
                             const ReadCosts& read) {
  auto config = Config::from_environment(options);
  if (!config.ok()) return config.error();
  if (Error error = check_forced_algorithm(config.value())) return error;
  if (Error error = check_forced_transport(config.value())) return error;
  // NCCL's connections are not encrypted.
  const std::string encrypted_by(config.value().encrypted_by());
  const bool has_key = !encrypted_by.empty();
  if (has_key && config.value().device_path == "nccl")
    return config.value().reject("device_path", "\"\" or \"host\", as " + encrypted_by +
                                                    " is set and NCCL does not encrypt");
  auto codecs = parse_compression("option codec", config.value().codec, size);
  if (!codecs.ok()) return codecs.error();
  auto costs = read_costs(config.value().costs, read);
  if (!costs.ok()) return costs.error();
  // Comes after all checks of options, because the first Context stays until the process ends.
  auto context = process_context(config.value(), host);
  if (!context.ok()) return context.error();
  OfProcess out{context.value(), {}, codecs.value()};
  out.options.config = config.value();
  out.options.costs = costs.value();
  out.options.make_runner = [path = has_key ? std::string("host") : config.value().device_path](
                                RunnerDelegate& group) { return make_cuda_runner(group, path); };
  out.options.store_server = process_store_server(context.value()->tls_key());
  out.options.store_host = host;
  return out;
}

// Creates a group of the given ranks. Raises an error of any option, after publishing the failure
// in the store.
c10::intrusive_ptr<ProcessGroupRing> create_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const std::string& group_name, std::vector<int> global_ranks,
    const std::map<std::string, std::string>& options, const ReadCosts& read) {
  if (size < 1 || rank < 0 || rank >= size || static_cast<int>(global_ranks.size()) != size)
    throw_error(Error(ErrorKind::kInvalidArgument, "ringdist: rank " + std::to_string(rank) +
                                                       " of " + std::to_string(size) + " with " +
                                                       std::to_string(global_ranks.size()) +
                                                       " global ranks cannot be a group"));
  const auto limit = checked_timeout("init_process_group, new_group", timeout);
  auto own = limit.ok() ? of_process(store_host(store), size, options, read)
                        : Result<OfProcess>(limit.error());
  if (own.ok())
    if (Error error = own.value().context->check_rank(global_ranks[static_cast<size_t>(rank)]))
      own = error;
  // Other ranks count this creation and wait for this rank, so they must be informed. A forked
  // child is not the rank.
  if (!own.ok() && own.error().kind() != ErrorKind::kAborted && size > 1)
    publish_failure(store, rank, global_ranks, own.error());
  throw_if(own.error());
  auto& [context, wanted, codecs] = own.value();
  if (rank == 0) tell_of_codec(codecs, wanted.config, options.contains("codec"));
  wanted.rank = rank;
  wanted.size = size;
  wanted.name = group_name.empty() ? "default" : group_name;
  wanted.members = std::move(global_ranks);
  wanted.timeout = limit.value();
  wanted.store = wrap_store(store, *context, wanted.name);
  wanted.unprefixed_store = wrap_store(unprefixed_store(store), *context);
  auto communicator = Communicator::create(context, std::move(wanted));
  throw_if(communicator.error());
  return c10::make_intrusive<ProcessGroupRing>(communicator.value(), codecs);
}

// Creates a group without members, which does not look for other ranks. Each process may have a
// store of its own. The store therefore cannot be queried, and its address does not determine the
// interface.
c10::intrusive_ptr<ProcessGroupRing> create_reconfigurable(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const std::string& group_name,
    const std::map<std::string, std::string>& options, const ReadCosts& read) {
  const std::string host = store_host(store);
  auto own = of_process(is_own(host) ? "" : host, std::max(size, 1), options, read);
  throw_if(own.error());
  auto& [context, wanted, codecs] = own.value();
  wanted.name = group_name.empty() ? "default" : group_name;
  wanted.timeout = value_of(checked_timeout("init_process_group", timeout));
  auto reconfiguration = std::make_shared<Reconfiguration>(context, std::move(wanted));
  return c10::make_intrusive<ProcessGroupRing>(std::move(reconfiguration), rank, size);
}

// Joins the running job `job` as a newcomer. Waits until the members admit it or `timeout` ends.
// The size of the group comes with the admission, so codecs are checked for 2 ranks before.
ProcessGroupRing::Joined join_group(const c10::intrusive_ptr<c10d::Store>& store,
                                    const std::string& job, std::chrono::milliseconds timeout,
                                    const std::map<std::string, std::string>& options,
                                    const ReadCosts& read) {
  auto own = of_process(store_host(store), /*size=*/2, options, read);
  throw_if(own.error());
  auto& [context, wanted, codecs] = own.value();
  wanted.store = wrap_store(unprefixed_store(store), *context);
  return ProcessGroupRing::join(context, std::move(wanted), job, timeout);
}

// Returns (rank, how, where) for each lost member.
std::vector<std::tuple<int, std::string, std::string>> lost_members(
    const ProcessGroupRing::Next& next) {
  std::vector<std::tuple<int, std::string, std::string>> out;
  for (const ShrinkResult::LostMember& one : next.shrunk.lost)
    out.emplace_back(one.rank, one.died ? "died" : "silent", one.where);
  return out;
}

// Runs at interpreter exit. Afterwards, a thread that needs the GIL would end the process.
// Callbacks of Futures are therefore waited for, as Python waits for its threads.
void shutdown() {
  keep_other_threads();
  if (const auto context = existing_process_context()) {
    context->shutdown(/*process_ends=*/true);
    const auto ended = [&](std::optional<Milliseconds> limit) {
      return context->pool().await_callbacks(deadline_after(limit));
    };
    if (!ended(Milliseconds(0))) {
      log(LogLevel::kWarn, "callbacks of Futures still run: the process ends when they have ended");
      (void)wait_in_slices(std::nullopt, ended);
    }
  }
  end_hosted_stores();  // callbacks and other processes may need them until then
}

}  // namespace

// Binds the group class and the functions that create groups. Functions that may wait release the
// GIL.
void bind_backend(py::module_& module) {
  // PyTorch's own holder type releases the GIL in destructors, which may wait for threads.
  py::class_<ProcessGroupRing, c10d::Backend, c10::intrusive_ptr<ProcessGroupRing>>(
      module, "ProcessGroupRing")
      .def_property_readonly("timeout",
                             [](ProcessGroupRing& it) { return it.communicator()->timeout(); })
      .def_property_readonly(
          "has_failed",
          [](ProcessGroupRing& it) { return it.getError() != c10d::ErrorType::SUCCESS; })
      // If the world has a bound device, new_group() calls this on ranks of no group. It assumes
      // that a backend that can be split is NCCL. New groups of ringdist split nothing.
      .def(
          "perform_nocolor_split", [](ProcessGroupRing&, const py::object&) {}, py::arg("device"))
      .def("admit", &ProcessGroupRing::admit, py::arg("job"), py::arg("note"), py::arg("most"),
           py::call_guard<py::gil_scoped_release>())
      .def("give_up", &ProcessGroupRing::give_up, py::arg("rank"), py::arg("why"),
           py::call_guard<py::gil_scoped_release>())
      .def("next_generation", &ProcessGroupRing::next_generation, py::arg("timeout"),
           py::call_guard<py::gil_scoped_release>());
  using Next = ProcessGroupRing::Next;
  py::class_<Next>(module, "NextGeneration")
      .def_readonly("backend", &Next::backend)
      .def_property_readonly("generation", [](const Next& it) { return it.shrunk.generation; })
      .def_property_readonly("id", [](const Next& it) { return it.shrunk.id; })
      .def_property_readonly("stayed", [](const Next& it) { return it.shrunk.survivors; })
      .def_property_readonly("joined", [](const Next& it) { return it.shrunk.joined; })
      .def_property_readonly("lost", &lost_members)
      .def_property_readonly("first_unfinished",
                             [](const Next& it) { return it.shrunk.first_unfinished; })
      .def_property_readonly("store", [](const Next& it) { return it.shrunk.store; });
  module.def("create_backend", &create_backend, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("group_name"), py::arg("global_ranks"), py::arg("options"),
             py::arg("read_costs") = ReadCosts(), py::call_guard<py::gil_scoped_release>());
  module.def("create_reconfigurable", &create_reconfigurable, py::arg("store"), py::arg("rank"),
             py::arg("size"), py::arg("timeout"), py::arg("group_name"), py::arg("options"),
             py::arg("read_costs") = ReadCosts(), py::call_guard<py::gil_scoped_release>());
  using Joined = ProcessGroupRing::Joined;
  py::class_<Joined>(module, "JoinedGroup")
      .def_readonly("next", &Joined::next)
      .def_readonly("name", &Joined::name)
      .def_readonly("note", &Joined::note);
  module.def("join_group", &join_group, py::arg("store"), py::arg("job"), py::arg("timeout"),
             py::arg("options"), py::arg("read_costs") = ReadCosts(),
             py::call_guard<py::gil_scoped_release>());
  module.def("shutdown", &shutdown, py::call_guard<py::gil_scoped_release>());
}

}  // namespace ringdist
