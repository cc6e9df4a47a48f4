// The messages of an op in rounds: those of round k wait for one of round k - 1, or take their turn
// after one, and wait for none later; each range taken as one segment. What a picture of the op
// shows; it says nothing of time.
//
// Pure. Any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "algorithm/schedule.h"
#include "base/error.h"
#include "base/topology.h"

namespace ringdist {

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
// (plan/rank_symmetry.h) have too many steps to look at.
Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown);

}  // namespace ringdist
