#include "engine/resolved_group.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace ringdist {

std::vector<ContextId> ResolvedGroup::contexts() const {
  std::vector<ContextId> out;
  for (const GroupMember& member : membership.members) out.push_back(member.context);
  return out;
}

ResolvedGroup ResolvedGroup::of(const std::vector<int>& ranks, int own) const {
  const int size = static_cast<int>(ranks.size());
  ResolvedGroup out;
  out.costs = costs;
  out.membership.cost_source = membership.cost_source;
  out.membership.rank = static_cast<int>(std::ranges::find(ranks, own) - ranks.begin());
  check(out.membership.rank < size, "a group of some ranks without this one");
  std::vector<std::vector<int>> hosts;  // new ranks
  std::map<int, int> new_host;
  for (int rank = 0; rank < size; ++rank) {
    const int was = ranks[rank];
    const auto [host, is_new] =
        new_host.emplace(membership.topology.host_of.at(was), static_cast<int>(hosts.size()));
    if (is_new) hosts.emplace_back();
    hosts[host->second].push_back(rank);
    out.membership.members.push_back(membership.members[was]);
    if (processes.empty()) continue;  // it has one rank
    ControlMember process = processes[was];
    process.rank = rank;
    process.host = host->second;
    out.processes.push_back(std::move(process));
  }
  out.membership.topology = Topology::from_hosts(std::move(hosts), size);
  return out;
}

}  // namespace ringdist
