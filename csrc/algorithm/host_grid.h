// Grid of the ranks of a group by hosts, for hierarchical schedules. Data is cut into *columns*:
// for parts as many as the largest host has ranks, for a whole tensor Topology::columns(). On each
// host one rank, the *leader* of the column, exchanges the column with other hosts. So the ranks of
// a host share its line, and no byte passes the line twice.
//
// Pure values; any thread may read.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {

// A view of one rank's Shape, with a copy of its topology. Without a topology, all ranks share one
// host.
class HostGrid {
 public:
  explicit HostGrid(const Shape& shape)
      : rank_(shape.rank),
        topology_(shape.topology.hosts.empty() ? Topology::one_host(shape.size) : shape.topology) {}

  // Returns the number of hosts.
  int count() const { return static_cast<int>(topology_.hosts.size()); }
  // Returns the number of columns for data that consists of parts.
  int columns() const { return topology_.most_on_a_host(); }
  // Returns the number of columns for a whole tensor.
  int columns_of_whole() const { return topology_.columns(); }
  // Returns the number of a rank's host.
  int of(int rank) const { return topology_.host_of[static_cast<size_t>(rank)]; }
  // Returns the number of this rank's host.
  int mine() const { return of(rank_); }
  // Returns the ranks of a host. Hosts lie on a circle, so any number is valid.
  const std::vector<int>& ranks(int host) const {
    return topology_.hosts[static_cast<size_t>(wrap(host, count()))];
  }
  // Returns the ranks of this rank's host.
  const std::vector<int>& local() const { return ranks(mine()); }
  // Returns the column that a rank leads on its host, whatever the sizes of other hosts.
  int column_of(int rank) const {
    const std::vector<int>& all = ranks(of(rank));
    return static_cast<int>(std::ranges::find(all, rank) - all.begin());
  }
  // Returns the leader of a column on a host. If there are more columns than ranks, a rank leads
  // several.
  int leader(int host, int column) const {
    const std::vector<int>& all = ranks(host);
    return all[static_cast<size_t>(column) % all.size()];
  }

  // Returns the edge kind for a contribution to a sum inside the host. Only data for the wire is
  // encoded, so this is kIntraHost if there are several hosts. If all ranks share one host, there
  // is no wire, but a requested codec still has to be used.
  EdgeKind contribution_kind() const {
    return count() > 1 ? EdgeKind::kIntraHost : EdgeKind::kContribution;
  }
  // Returns the operands of such a sum in rank order. The local operand is at `mine`; the others
  // arrive for `sum`.
  std::vector<Source> local_sources(Range mine, Range sum) const {
    std::vector<Source> out;
    for (const int rank : local())
      out.push_back(rank == rank_ ? Source{-1, mine} : Source{rank, sum, contribution_kind()});
    return out;
  }

  // Returns all other ranks of this host, and before them the leader of the next host if `onward`.
  std::vector<int> targets(int column, bool onward) const {
    std::vector<int> out;
    if (onward) out.push_back(leader(mine() + 1, column));
    for (const int rank : local())
      if (rank != rank_) out.push_back(rank);
    return out;
  }

 private:
  const int rank_;
  const Topology topology_;
};

}  // namespace ringdist
