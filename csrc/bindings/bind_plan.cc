// Binds plans and cost estimates, for `python -m torch_ringdist plan`.
#include <pybind11/stl.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bindings/bind.h"
#include "bindings/costs.h"
#include "codec/codec.h"
#include "engine/device/devices.h"
#include "simulate/plan_explanation.h"
#include "torch/base/errors.h"

namespace py = pybind11;

namespace ringdist {
namespace {

// Ranks of each host.
using Hosts = std::vector<std::vector<int>>;

// Joins the names of all values of an enum.
template <typename Kind>
std::string list_names(std::span<const Kind> all, std::string_view (*name)(Kind)) {
  std::string out;
  for (const Kind one : all) out += (out.empty() ? "" : ", ") + std::string(name(one));
  return out;
}

// Returns the value with a name. Raises an error that lists all names if there is none.
template <typename Kind>
Kind find_named(const std::string& argument, const std::string& given,
                std::type_identity_t<std::span<const Kind>> all, std::string_view (*name)(Kind)) {
  const auto found = std::ranges::find_if(all, [&](Kind one) { return name(one) == given; });
  if (found == all.end())
    throw_error(Error(ErrorKind::kInvalidArgument,
                      argument + ": unknown '" + given + "'; have: " + list_names(all, name)));
  return *found;
}

// Returns all collectives, without sends and receives.
std::vector<Collective> operations() {
  std::vector<Collective> out;
  for (size_t i = 0; i < kCollectives; ++i)
    if (const auto kind = static_cast<Collective>(i); kind != Collective::kPointToPoint)
      out.push_back(kind);
  return out;
}

// Returns all dtypes that tensors have.
std::vector<DType> dtypes() {
  std::vector<DType> out;
  for (int one = 0; one <= static_cast<int>(DType::kFloat8E5M2); ++one)
    if (static_cast<DType>(one) != DType::kBytes) out.push_back(static_cast<DType>(one));
  return out;
}

// Returns a codec map in which each whole input has the codecs of `spec`. Returns null if `spec`
// compresses nothing.
std::shared_ptr<const CodecMap> blocks_of(const std::string& spec, const OpSpec& request,
                                          int size) {
  auto codecs = parse_compression("codec", spec, size);
  throw_if(codecs.error());
  if (codecs.value().plain()) return nullptr;
  if (request.kind == Collective::kAllgather) {
    throw_if(check_single_codec(spec));
    codecs.value().result = codecs.value().contribution;
  }
  CodecMap map;
  const int parts = request.kind == Collective::kReduceScatter ? size : 1;
  for (int part = 0; part < parts; ++part)
    map.parts.push_back({part * request.count, request.count, codecs.value()});
  return std::make_shared<const CodecMap>(std::move(map));
}

// Returns the number of ranks on all hosts.
int size_of(const Hosts& hosts) {
  int out = 0;
  for (const auto& host : hosts) out += static_cast<int>(host.size());
  return out;
}

// Converts the arguments of a planned op. Raises an error for an unknown name or an unsupported
// reduction.
OpSpec request_of(const std::string& operation, int64_t count, const std::string& dtype,
                  const std::string& reduce_op, int root, int size, const std::string& codec) {
  OpSpec out;
  out.kind = find_named("operation", operation, operations(), &collective_name);
  out.dtype = find_named("dtype", dtype, dtypes(), &dtype_name);
  out.root = root;
  out.count = out.kind == Collective::kBarrier ? 0 : count;
  if (reduces(out.kind)) {
    out.reduce_op = find_named("reduce_op", reduce_op, all_reduce_ops(), &reduce_op_name);
    if (!is_reducible(out.dtype, out.reduce_op))
      throw_error(Error(ErrorKind::kInvalidArgument, "reduce_op: " + reduce_op + " of " + dtype +
                                                         " is not supported; it takes " +
                                                         reducible_dtypes(out.reduce_op)));
  }
  if (!codec.empty()) out.codec_map = blocks_of(codec, out, size);
  return out;
}

// Returns the input of explain_plan().
ExplainRequest forecast_request(const std::string& operation, int64_t count,
                                const std::string& dtype, const std::string& reduce_op, int root,
                                const Hosts& hosts, const std::string& algorithm,
                                const std::string& codec, bool layout_deterministic,
                                int64_t segment_bytes, const CostNumbers& costs) {
  ExplainRequest out;
  const int size = size_of(hosts);
  out.request = request_of(operation, count, dtype, reduce_op, root, size, codec);
  out.options = {0, size, algorithm, layout_deterministic, segment_bytes};
  out.topology = Topology::from_hosts(hosts, size);
  out.costs = costs_of(costs);
  return out;
}

// Returns one alternative as a dict. Simulated values are missing if it was not simulated.
py::dict as_dict(const PlanAlternative& one) {
  py::dict out;
  out["algorithm"] = std::string(one.algorithm->name);
  out["description"] = std::string(one.algorithm->description);
  out["refusal"] = one.refusal;
  out["segment_count"] = one.plan.segment_count;
  if (one.refusal.empty()) out["formula_seconds"] = seconds(one.cost);
  if (!one.simulated) return out;
  out["seconds"] = seconds(one.simulated->time);
  out["messages"] = one.simulated->messages;
  out["bytes_inside"] = one.simulated->bytes_inside;
  out["bytes_between"] = one.simulated->bytes_between;
  out["busiest_line"] = one.simulated->busiest_line;
  out["ranks_walked"] = one.simulated->ranks;
  out["joined"] = one.simulated->joined;
  return out;
}

// Returns the rounds of a schedule as a list of dicts.
py::list as_list(const std::vector<Round>& rounds) {
  py::list out;
  for (const Round& round : rounds) {
    py::list messages;
    for (const RoundMessage& one : round.messages)
      messages.append(
          py::make_tuple(one.from, one.to, one.count, std::string(edge_kind_name(one.edge_kind))));
    py::dict row;
    row["messages_inside"] = round.messages_inside;
    row["messages_between"] = round.messages_between;
    row["elements_inside"] = round.elements_inside;
    row["elements_between"] = round.elements_between;
    row["messages"] = messages;
    out.append(row);
  }
  return out;
}

// Explains which plan an op would get, and what the alternatives cost. If an algorithm needs more
// than `most_messages` messages, the simulation joins segments. If `shown` is at least 0, adds the
// rounds of the schedule, with their messages for up to `shown` ranks.
py::dict forecast_op(const std::string& operation, int64_t count, const std::string& dtype,
                     const std::string& reduce_op, int root, const Hosts& hosts,
                     const std::string& algorithm, const std::string& codec,
                     bool layout_deterministic, int64_t segment_bytes, const CostNumbers& costs,
                     int64_t most_messages, int shown) {
  auto wanted = forecast_request(operation, count, dtype, reduce_op, root, hosts, algorithm, codec,
                                 layout_deterministic, segment_bytes, costs);
  wanted.most_messages = most_messages;
  std::optional<Result<PlanExplanation>> found;
  std::optional<Result<std::vector<Round>>> rounds;
  {
    py::gil_scoped_release release;
    found = explain_plan(wanted);
    throw_if(found->error());
    Shape shape;
    shape.size = wanted.options.size;
    shape.root = root;
    shape.count = wanted.request.count;
    if (shown >= 0)
      rounds = rounds_of(*found->value().plan.algorithm, wanted.request.kind, shape,
                         wanted.topology, shown);
  }
  py::list alternatives;
  for (const PlanAlternative& one : found->value().alternatives) alternatives.append(as_dict(one));
  const Plan& plan = found->value().plan;
  py::dict out;
  out["algorithm"] = std::string(plan.algorithm->name);
  out["why"] = std::string(plan.why);
  const CollectiveTraits& traits = traits_of(wanted.request.kind);
  out["reduces"] = traits.reduces;
  out["in_place"] = traits.in_place;
  out["segment_count"] = plan.segment_count;
  out["alternatives"] = alternatives;
  if (rounds && rounds->ok()) out["rounds"] = as_list(rounds->value());
  return out;
}

// Explains which device path an op would take. Needs the CUDA library but no device.
py::dict device_route(const std::string& operation, int64_t count, const std::string& dtype,
                      const std::string& reduce_op, int root, const Hosts& hosts,
                      const std::string& algorithm, const std::string& codec, int devices,
                      const std::string& path, bool nccl) {
  const auto library = load_cuda();
  throw_if(library.error());
  DevicePathQuery question;
  question.request = request_of(operation, count, dtype, reduce_op, root, size_of(hosts), codec);
  question.algorithm = algorithm;
  question.hosts = hosts;
  question.devices = devices;
  question.path = path;
  question.nccl = nccl;
  const auto route = library.value()->route(question);
  throw_if(route.error());
  py::dict out;
  out["by_nccl"] = route.value().by_nccl;
  out["why"] = route.value().why;
  out["how"] = route.value().how;
  out["because"] = route.value().because;
  out["host_op"] = route.value().host_op;
  return out;
}

// Returns default costs for a network of this speed.
CostNumbers usual(double bits_per_second, int64_t latency_ns) {
  return numbers_of(default_costs(bits_per_second, Duration(latency_ns)));
}

}  // namespace

void bind_plan(py::module_& module) {
  module.def("forecast", &forecast_op, py::kw_only(), py::arg("operation"), py::arg("count"),
             py::arg("dtype"), py::arg("reduce_op"), py::arg("root"), py::arg("hosts"),
             py::arg("algorithm"), py::arg("codec"), py::arg("layout_deterministic"),
             py::arg("segment_bytes"), py::arg("costs"), py::arg("most_messages"),
             py::arg("shown"));
  module.def("device_route", &device_route, py::kw_only(), py::arg("operation"), py::arg("count"),
             py::arg("dtype"), py::arg("reduce_op"), py::arg("root"), py::arg("hosts"),
             py::arg("algorithm"), py::arg("codec"), py::arg("devices"), py::arg("path"),
             py::arg("nccl"));
  module.attr("USUAL_RATE") = kDefaultRate;
  module.attr("USUAL_LATENCY_NS") = kDefaultLatency.count();
  module.def("usual_costs", &usual, py::arg("bits_per_second"), py::arg("latency_ns"));
}

}  // namespace ringdist
