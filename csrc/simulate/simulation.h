// Simulates an op over a NetworkModel to predict its duration: its schedules run segment by
// segment. The costs are those of transport `sim` (simulate/network_model.h), but there are no
// bytes and no engine. Flow control is limited to the window of an edge, and there are no notices.
// Work on a rank takes no time except for sending and receiving.
//
// If the ranks have a symmetry period n (simulate/rank_symmetry.h), n of them stand for all, in
// whole hosts if possible. A ring of thousands of ranks then takes no longer than one of its hosts.
// Otherwise every rank is simulated. If those are too many, n ranks on parts of hosts are used,
// each with its share of the hosts' lines, which is less exact.
//
// Pure: the same request gives the same result on every rank. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "base/network_costs.h"
#include "base/topology.h"

namespace ringdist {

// The op and the network to simulate.
struct SimulationRequest {
  const Algorithm* algorithm = nullptr;  // must support `kind`
  Collective kind = Collective::kAllreduce;
  Shape shape;                // its rank is not read; it must have no parts
  double element_bytes = 4;   // bytes of an element on the wire; a codec's mean is fractional
  double uncoded_bytes = 4;   // the same for EdgeKind::kIntraHost
  int64_t segment_count = 1;  // elements of a segment, as in Plan
  Topology topology;          // hosts of all ranks
  NetworkCosts costs;
  bool every_rank = false;  // simulate all ranks even if they are symmetric
  // Models the staging of shared memory inside hosts. Data for several ranks is copied once. Data
  // that a reduce or a relay has just stored costs half a copy.
  bool stages = true;
  int64_t window = 8;  // segments of an edge that may be on their way, as engine/op grants
  // If there were more messages than this, several segments are joined to one message of the same
  // total cost. That saves time and makes the overlap of steps coarser.
  int64_t most_messages = INT64_MAX;
};

// The result of a simulation.
struct SimulationResult {
  Duration time{0};           // from the call, on all ranks at once, until the last has ended
  int64_t messages = 0;       // number sent by all ranks
  int64_t bytes_inside = 0;   // payload of all messages inside hosts
  int64_t bytes_between = 0;  // the same between hosts
  int64_t busiest_line = 0;   // payload in one direction on the host's line with most
  int ranks = 0;              // number of simulated ranks
  int64_t joined = 1;         // segments per simulated message
};

// Simulates the op. Returns kNotSupported if the ranks are not symmetric and have more than
// kMaxSimulatedSteps steps. A request that breaks the conditions above fails a check.
Result<SimulationResult> simulate(const SimulationRequest& request);

// The largest number of steps of all simulated ranks together. It takes about a gigabyte and ten
// seconds.
inline constexpr int64_t kMaxSimulatedSteps = 3'000'000;

// Returns the schedules of ranks 0 to `alike` - 1, or nothing if they have more steps than
// kMaxSimulatedSteps. `shape` includes the topology; its rank is not read.
std::optional<std::vector<Schedule>> schedules_to_simulate(const Algorithm& algorithm,
                                                           Collective kind, Shape shape, int alike);

}  // namespace ringdist
