// What an op costs by the terms of a network: its schedules are walked, segment by segment, over a
// Wire. The same terms as the simulated transport's (simulate/network_model.h), without bytes,
// without an engine: no flow control but the window of an edge, no notices. Work on a rank takes no
// time but that of its messages' ends.
//
// Where ranks are alike - the layout and the schedules look the same from rank r and from r + n -
// n of them stand for all: those of whole hosts; so a ring of thousands of ranks takes no longer
// than one host of it. Else every rank is walked. Where those are too many, n ranks of parts of
// hosts do, which then have their share of the hosts' lines: less exact.
//
// Pure: the same request gives the same answer on every rank. Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "base/network_costs.h"
#include "base/topology.h"

namespace ringdist {

struct SimulationRequest {
  const Algorithm* algorithm = nullptr;  // supports `kind`
  Collective kind = Collective::kAllreduce;
  Shape shape;                // its rank is not read; no parts of their own sizes
  double element_bytes = 4;   // that travel, of an element: a codec's mean is no whole number
  double uncoded_bytes = 4;   // the same of one that goes to a sum of the own host (kInside)
  int64_t segment_count = 1;  // elements, as in Plan
  Topology topology;          // of all ranks
  NetworkCosts costs;
  bool every_rank = false;  // walk all of them, though they be alike
  // Inside hosts, as shared memory does it: what goes to several is copied once, and what a reduce
  // or a relay has just stored is stored where it leaves from at half the price of a copy.
  bool stages = true;
  int64_t window = 8;  // segments of an edge that may be on their way: as engine/op grants
  // Where more messages would be walked, as many segments as that takes are joined to one, which
  // costs what they do: time is spared, and what is lost is how finely steps overlap.
  int64_t most_messages = INT64_MAX;
};

struct SimulationResult {
  Duration time{0};           // from the call, on all ranks at once, until the last rank has ended
  int64_t messages = 0;       // of all ranks
  int64_t bytes_inside = 0;   // payload of all messages inside hosts
  int64_t bytes_between = 0;  // the same between hosts
  int64_t busiest_line = 0;   // payload that leaves, or comes to, the host with most of it
  int ranks = 0;              // that were walked
  int64_t joined = 1;         // segments to a message that was walked
};

// Error: kNotSupported, the ranks differ and have more steps than are walked (kMostWalkedSteps).
Result<SimulationResult> simulate(const SimulationRequest& request);

// Of all ranks that are walked together: about a gigabyte, and ten seconds.
inline constexpr int64_t kMaxSimulatedSteps = 3'000'000;

// Of ranks 0 to `alike` - 1; none where they have more steps. `shape`: with its topology; its rank
// is not read.
std::optional<std::vector<Schedule>> schedules_to_simulate(const Algorithm& algorithm,
                                                           Collective kind, Shape shape, int alike);

}  // namespace ringdist
