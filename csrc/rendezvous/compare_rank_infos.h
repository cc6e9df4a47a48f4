// Whether processes can be a group. A pure function.
#pragma once

#include <vector>

#include "base/error.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// By rank; `rank` asks. kMismatch, naming what differs: wire version, size, options; the costs of a
// file that a rank names, and rank 0's.
Error compare_rank_infos(const std::vector<RankInfo>& entries, int rank);

}  // namespace ringdist
