// What would be done with an op, what else could be, and what each costs by the terms of a network:
// for people who ask before there is a group (`python -m torch_ringdist plan`).
//
// Pure: the choice is Planner's, of the same request. Any thread.
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

struct ExplainRequest {
  PlannerOptions options;  // its rank and costs are not read
  OpSpec request;          // of a collective; no parts of their own sizes
  Topology topology;       // of all ranks
  NetworkCosts costs;
  int64_t most_messages = INT64_MAX;  // as of SimulationRequest, for each algorithm
};

// An algorithm that has the collective.
struct PlanAlternative {
  const Algorithm* algorithm = nullptr;
  std::string refusal;                        // why it may not be taken; "": it may
  Plan plan;                                  // if it may
  Duration cost{0};                           // by the formula that the choice goes by
  std::optional<SimulationResult> simulated;  // if it may, and there are not too many steps
};

struct PlanExplanation {
  Plan plan;                                  // the choice
  std::vector<PlanAlternative> alternatives;  // the choice among them, in the order of algorithms()
};

// Errors: as of Planner::plan().
Result<PlanExplanation> explain_plan(const ExplainRequest& wanted);

// The messages of an op in rounds: those of round k wait for one of round k - 1, or take their turn
// after one, and wait for none later; each range taken as one segment. What a picture of the op
// shows; it says nothing of time.
//
// Pure. Any thread.
struct RoundMessage {
  int from = 0;
  int to = 0;
  int64_t count = 0;  // elements
  EdgeKind edge_kind = EdgeKind::kContribution;
};

struct Round {
  // Of all ranks.
  int64_t messages_inside = 0;  // of hosts
  int64_t messages_between = 0;
  int64_t elements_inside = 0;
  int64_t elements_between = 0;
  std::vector<RoundMessage> messages;  // by sender; empty where there are too many ranks to show
};

// Of a schedule of `shape`, whose rank is not read; it has no parts of their own sizes. Messages
// are listed for groups of up to `shown` ranks. Error: kNotSupported, ranks that are not alike
// (simulate/rank_symmetry.h) have too many steps to look at.
Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown);

}  // namespace ringdist
