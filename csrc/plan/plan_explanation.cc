#include "plan/plan_explanation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// Bytes that travel for an element: of contributions, of sums, or half of each.
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

Planner planner_with(const ExplainRequest& wanted, std::string_view algorithm) {
  PlannerOptions options = wanted.options;
  if (!algorithm.empty()) options.algorithm = algorithm;
  Planner out(std::move(options));
  out.set_network(wanted.topology, wanted.costs);
  return out;
}

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

}  // namespace ringdist
