// The ranks of a group by hosts, as hierarchical schedules see them. Data is cut into *columns*:
// parts as the host with most ranks has ranks, a whole tensor as Topology::columns(); on each host
// one rank, the *carrier*, takes a column to and from the next host. So a host's ranks share its
// line, and no byte takes it twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {

class HostGrid {
 public:
  explicit HostGrid(const Shape& shape)
      : rank_(shape.rank),
        topology_(shape.topology.hosts.empty() ? Topology::one_host(shape.size) : shape.topology) {}

  int count() const { return static_cast<int>(topology_.hosts.size()); }
  int columns() const { return topology_.most_on_a_host(); }
  int columns_of_whole() const { return topology_.columns(); }
  int of(int rank) const { return topology_.host_of[static_cast<size_t>(rank)]; }
  int mine() const { return of(rank_); }
  // Of the host, which lies on a circle.
  const std::vector<int>& ranks(int host) const {
    return topology_.hosts[static_cast<size_t>(wrap(host, count()))];
  }
  const std::vector<int>& local() const { return ranks(mine()); }
  // The column of which a rank is the carrier on its host, whatever the others' sizes.
  int column_of(int rank) const {
    const std::vector<int>& all = ranks(of(rank));
    return static_cast<int>(std::ranges::find(all, rank) - all.begin());
  }
  int leader(int host, int column) const {
    const std::vector<int>& all = ranks(host);
    return all[static_cast<size_t>(column) % all.size()];
  }

  // Of what a rank gives to a sum of its own host: only what a wire carries is encoded, but where
  // all share one host there is no wire, and a codec was asked for all the same.
  EdgeKind contribution_kind() const {
    return count() > 1 ? EdgeKind::kIntraHost : EdgeKind::kContribution;
  }
  // Of such a sum, by rank: mine lies there, the others' come to where it is made.
  std::vector<Source> local_sources(Range mine, Range sum) const {
    std::vector<Source> out;
    for (const int rank : local())
      out.push_back(rank == rank_ ? Source{-1, mine} : Source{rank, sum, contribution_kind()});
    return out;
  }

  // All others of my host; and before them the carrier of the next host, if `onward`.
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
