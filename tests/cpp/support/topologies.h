// Layouts of ranks over hosts.
#pragma once

#include <utility>
#include <vector>

#include "base/topology.h"

namespace ringdist::test {

// Returns a topology with `per_host` consecutive ranks on each host. The last host may have fewer.
inline Topology runs_of_ranks(int size, int per_host) {
  std::vector<std::vector<int>> hosts(static_cast<size_t>((size + per_host - 1) / per_host));
  for (int rank = 0; rank < size; ++rank)
    hosts[static_cast<size_t>(rank / per_host)].push_back(rank);
  return Topology::from_hosts(std::move(hosts), size);
}

}  // namespace ringdist::test
