#include "simulate/plan_explanation.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/round_assignment.h"
#include "simulate/rank_symmetry.h"
#include "simulate/simulation.h"

namespace ringdist {
namespace {

// Returns the mean bytes of an element on the wire: of contributions, of results, or half of each.
double element_bytes(const OpSpec& request) {
  if (!request.codec_map) return static_cast<double>(dtype_size(request.dtype));
  double bits = 0;
  for (const CodecMapPart& part : request.codec_map->parts) {
    const double contribution = part.codecs.contribution->bits();
    const double result = part.codecs.result->bits();
    const double share = static_cast<double>(part.count) /
                         static_cast<double>(std::max<int64_t>(1, request.codec_map->count()));
    if (request.kind == Collective::kAllreduce)
      bits += share * (contribution + result) / 2;
    else
      bits += share * (request.kind == Collective::kReduceScatter ? contribution : result);
  }
  return bits / 8;
}

// Makes a planner for the request's network; `algorithm` is forced unless it is empty.
Planner planner_with(const ExplainRequest& wanted, std::string_view algorithm) {
  PlannerOptions options = wanted.options;
  if (!algorithm.empty()) options.algorithm = algorithm;
  Planner out(std::move(options));
  out.set_network(wanted.topology, wanted.costs);
  return out;
}

// Plans and simulates the op with one algorithm. A forced algorithm that Planner passes over has
// been refused, so refusal() gives the reason.
PlanAlternative alternative(const ExplainRequest& wanted, const Algorithm& algorithm) {
  PlanAlternative out;
  out.algorithm = &algorithm;
  const Planner planner = planner_with(wanted, algorithm.name);
  const auto plan = planner.plan(wanted.request);
  if (!plan.ok() || plan.value().algorithm != &algorithm) {
    out.refusal = planner.refusal(algorithm, wanted.request);
    check(!out.refusal.empty(), "an algorithm that is passed over for no reason");
    return out;
  }
  out.cost = planner.cost_of(algorithm, wanted.request);
  out.plan = plan.value();
  SimulationRequest simulated;
  simulated.algorithm = &algorithm;
  simulated.kind = wanted.request.kind;
  simulated.shape.size = wanted.options.size;
  simulated.shape.root = wanted.request.root;
  simulated.shape.count = wanted.request.count;
  simulated.element_bytes = element_bytes(wanted.request);
  simulated.uncoded_bytes = static_cast<double>(dtype_size(wanted.request.dtype));
  simulated.segment_count = out.plan.segment_count;
  simulated.topology = wanted.topology;
  simulated.costs = wanted.costs;
  simulated.most_messages = wanted.most_messages;
  if (auto result = simulate(simulated); result.ok()) out.simulated = result.value();
  return out;
}

// Adds the messages of a step of rank `from` to a round; `times` is the number of ranks that it
// stands for.
void add(const Step& step, int from, const Topology& topology, bool shown, int times, Round& out) {
  for (const int to : step.to) {
    const bool inside = topology.same_host(from, to);
    (inside ? out.messages_inside : out.messages_between) += times;
    (inside ? out.elements_inside : out.elements_between) += times * step.range.count;
    if (shown) out.messages.push_back({from, to, step.range.count, step.edge_kind});
  }
}

}  // namespace

Result<PlanExplanation> explain_plan(const ExplainRequest& wanted) {
  check(!wanted.request.envelope && wanted.request.input_parts.empty() &&
            wanted.request.output_parts.empty(),
        "a forecast of what is not walked");
  const auto plan = planner_with(wanted, "").plan(wanted.request);
  if (!plan.ok()) return plan.error();
  PlanExplanation out;
  out.plan = plan.value();
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.supports(wanted.request.kind))
      out.alternatives.push_back(alternative(wanted, algorithm));
  return out;
}

Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown) {
  check(topology.host_of.size() == static_cast<size_t>(shape.size), "a layout of another size");
  const bool lists = shape.size <= shown;
  const int alike = lists ? shape.size : symmetry_period(algorithm, kind, shape, topology, true);
  std::vector<std::shared_ptr<const CompiledSchedule>> ranks;
  Shape mine = shape;
  mine.topology = topology;
  auto schedules = schedules_to_simulate(algorithm, kind, std::move(mine), alike);
  if (!schedules)
    return Error(ErrorKind::kNotSupported,
                 std::to_string(shape.size) + " ranks that are not alike have more than " +
                     std::to_string(kMaxSimulatedSteps) + " steps to look at");
  // One segment per step, because RoundAssignment requires that.
  for (Schedule& schedule : *schedules) {
    int64_t longest = 1;
    for (const Step& step : schedule.steps) longest = std::max(longest, step.range.count);
    ranks.push_back(compile(std::move(schedule), longest));
  }
  const RoundAssignment rounds(std::move(ranks), shape.size, RoundAssignment::SendMode::kKept);
  std::vector<Round> out;
  for (int rank = 0; rank < alike; ++rank)
    for (size_t step = 0; step < rounds.steps(rank).size(); ++step) {
      const Step& one = rounds.steps(rank)[step].step;
      if (one.to.empty()) continue;
      const auto round = static_cast<size_t>(rounds.of(rank, static_cast<int>(step)));
      if (out.size() <= round) out.resize(round + 1);
      add(one, rank, topology, lists, shape.size / alike, out[round]);
    }
  return out;
}

}  // namespace ringdist
