#include "base/topology.h"

#include <algorithm>
#include <numeric>

namespace ringdist {

Topology Topology::one_host(int size) {
  std::vector<int> all(size);
  std::iota(all.begin(), all.end(), 0);
  return from_hosts({all}, size);
}

// Sorted lists of ranks compare by their first rank, so the second sort orders the hosts by their
// lowest ranks.
Topology Topology::from_hosts(std::vector<std::vector<int>> hosts, int size) {
  Topology out;
  for (auto& host : hosts) std::sort(host.begin(), host.end());
  std::sort(hosts.begin(), hosts.end());
  out.host_of.assign(size, 0);
  for (size_t h = 0; h < hosts.size(); ++h)
    for (int rank : hosts[h]) out.host_of[rank] = static_cast<int>(h);
  out.hosts = std::move(hosts);
  return out;
}

int Topology::most_on_a_host() const {
  size_t most = 0;
  for (const auto& host : hosts) most = std::max(most, host.size());
  return static_cast<int>(most);
}

int Topology::columns() const {
  if (hosts.empty()) return 0;
  const size_t average = (host_of.size() + hosts.size() - 1) / hosts.size();
  return std::min(most_on_a_host(), static_cast<int>(2 * average));
}

}  // namespace ringdist
