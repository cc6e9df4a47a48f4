// Placement of a group's ranks on hosts. It is the same on all ranks, because it is an input of
// every plan. Plain values; any thread.
#pragma once

#include <vector>

namespace ringdist {

// Ranks of a group by host.
struct Topology {
  // host_of[rank] is an index into `hosts`. Hosts are in the order of their lowest rank; ranks
  // ascend within a host.
  std::vector<int> host_of;
  std::vector<std::vector<int>> hosts;

  // Returns the largest number of ranks on a host; 0 if there are no hosts.
  int most_on_a_host() const;
  // Returns the number of columns into which a hierarchical allreduce cuts a tensor. Each column
  // has a shard for each host. There is one column for each rank of the largest host, but at most
  // twice the average number of ranks per host. Otherwise, very unequal hosts would need as many
  // steps as ranks times hosts.
  int columns() const;
  bool same_host(int a, int b) const { return host_of[a] == host_of[b]; }

  // Make topologies. one_host() has all ranks on one host; tests and single-host groups use it.
  // from_hosts() takes the ranks of each host, in any order; each of the `size` ranks must be in
  // one of them. No host's list may be empty.
  static Topology one_host(int size);
  static Topology from_hosts(std::vector<std::vector<int>> hosts, int size);
};

}  // namespace ringdist
