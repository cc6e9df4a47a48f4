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

#include "base/error.h"
#include "base/topology.h"
#include "network/costs.h"
#include "plan/planner.h"
#include "plan/simulation.h"

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

}  // namespace ringdist
