// Which ranks of a group share a host. The same on all ranks: it is an input of every plan.
#pragma once

#include <vector>

namespace ringdist {

struct Topology {
  // host_of[rank] is an index into hosts; hosts are in the order of their lowest rank.
  std::vector<int> host_of;
  std::vector<std::vector<int>> hosts;

  // Ranks of the host that has most; 0 if there is none.
  int most_on_a_host() const;
  // In so many columns an allreduce by hosts cuts a tensor, with a shard of each for each host: one
  // for each rank of the host that has most; but of very unequal hosts, lest steps are as many as
  // ranks times hosts, no more than twice as many as a host has on average.
  int columns() const;
  bool same_host(int a, int b) const { return host_of[a] == host_of[b]; }

  // Every rank on one host (or each on its own): what tests and single-host groups use.
  static Topology one_host(int size);
  static Topology from_hosts(std::vector<std::vector<int>> hosts, int size);
};

}  // namespace ringdist
