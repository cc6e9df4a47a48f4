// Explains the plan of an op: the choice, the alternatives, and the predicted cost of each on a
// given network. Users query it before there is a group (`python -m torch_ringdist plan`).
//
// Pure: the choice is that of Planner for the same op spec. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "base/network_costs.h"
#include "base/topology.h"
#include "plan/planner.h"
#include "simulate/simulation.h"

namespace ringdist {

// The op, the group and the network to explain. `topology` has all options.size ranks, also if they
// share one host.
struct ExplainRequest {
  PlannerOptions options;  // its rank and costs are not read
  OpSpec request;          // a collective without parts
  Topology topology;       // hosts of all ranks
  NetworkCosts costs;
  int64_t most_messages = INT64_MAX;  // see SimulationRequest; for each algorithm
};

// An algorithm that has the collective, with its predicted costs.
struct PlanAlternative {
  const Algorithm* algorithm = nullptr;
  std::string refusal;                        // the reason why it may not be used, or ""
  Plan plan;                                  // only if it may be used
  Duration cost{0};                           // by the formula that the choice is based on
  std::optional<SimulationResult> simulated;  // none if not allowed or too many steps
};

// The explained plan.
struct PlanExplanation {
  Plan plan;  // the choice
  // All algorithms with the collective, the choice among them, in the order of algorithms().
  std::vector<PlanAlternative> alternatives;
};

// Explains the op. Returns the errors of Planner::plan(). It simulates each algorithm, which can
// take seconds (kMaxSimulatedSteps).
Result<PlanExplanation> explain_plan(const ExplainRequest& wanted);

// A message of an op, for a list of rounds. The messages of round k wait for one of round k - 1, or
// take their turn after one, and wait for none later. Each range counts as one segment. Rounds
// serve pictures of the op and contain no times.
//
// Pure. Any thread.
struct RoundMessage {
  int from = 0;
  int to = 0;
  int64_t count = 0;  // elements
  EdgeKind edge_kind = EdgeKind::kContribution;
};

// The messages of all ranks in one round.
struct Round {
  // Sums over all ranks.
  int64_t messages_inside = 0;  // inside hosts
  int64_t messages_between = 0;
  int64_t elements_inside = 0;
  int64_t elements_between = 0;
  std::vector<RoundMessage> messages;  // by sender; empty for groups larger than `shown`
};

// Returns the rounds of a schedule. `shape` must have no parts, and its rank is not read. Messages
// are listed for groups of up to `shown` ranks. Returns kNotSupported if there are too
// many steps to examine, which symmetric ranks (simulate/rank_symmetry.h) avoid in large groups.
Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown);

}  // namespace ringdist
