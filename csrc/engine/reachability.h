// Whether ranks can reach each other by what they have published: a pure function of that, so that
// all ranks of a group say the same.
#pragma once

#include <string>
#include <vector>

#include "base/topology.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// Some rank has no transport in common with some other that connects their hosts, and one that
// opens late may be it. `wanted`: only by that one; "": by any.
bool needs_late_transports(const std::vector<RankInfo>& entries, const Topology& topology,
                           const std::string& wanted);

}  // namespace ringdist
