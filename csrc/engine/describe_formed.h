// What the log says of a group that has found its members. Any thread.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "engine/group/group_descriptor.h"
#include "rendezvous/rank_info.h"

namespace ringdist {

// "rank 3", "ranks 0-7 9"; in ascending order.
std::string format_ranks(const std::vector<int>& ranks);

// "group 'g' is formed: rank 0 of 4, ranks 0-3 on host a, interface eth0, over shm to ranks 1-3,
// UCX 1.22.0 (wheel), RINGDIST_MEMORY=1GiB": the settings are those that are not the defaults.
std::string describe_formed(const std::string& name, const Config& config,
                            const std::vector<RankInfo>& entries,
                            const GroupDescriptor& membership);

}  // namespace ringdist
