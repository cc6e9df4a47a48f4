#include "engine/reachability.h"

#include <algorithm>
#include <map>
#include <utility>

#include "transport/registry.h"

namespace ringdist {
namespace {

using Names = std::vector<std::string>;

// That lead beyond the own process.
Names usable(const RankInfo& entry, const std::string& wanted) {
  Names out;
  for (const auto& [name, address] : entry.transports)
    if (find_transport(name) != nullptr && (wanted.empty() || name == wanted)) out.push_back(name);
  std::ranges::sort(out);
  return out;
}

bool meet(const Names& one, const Names& other, bool same_host) {
  return std::ranges::any_of(one, [&](const std::string& name) {
    return (same_host || !find_transport(name)->within_host) &&
           std::ranges::binary_search(other, name);
  });
}

// Most ranks of a host have the same transports: such count as one.
bool all_reach_all(const std::vector<RankInfo>& entries, const Topology& topology,
                   const std::string& wanted) {
  std::map<std::pair<size_t, Names>, int> kinds;  // how many have those, on that host
  for (size_t host = 0; host < topology.hosts.size(); ++host)
    for (const int rank : topology.hosts[host])
      ++kinds[{host, usable(entries[static_cast<size_t>(rank)], wanted)}];
  for (auto one = kinds.begin(); one != kinds.end(); ++one) {
    const auto& [host, names] = one->first;
    if (one->second > 1 && !meet(names, names, /*same_host=*/true)) return false;
    for (auto other = std::next(one); other != kinds.end(); ++other)
      if (!meet(names, other->first.second, host == other->first.first)) return false;
  }
  return true;
}

}  // namespace

bool needs_late_transports(const std::vector<RankInfo>& entries, const Topology& topology,
                           const std::string& wanted) {
  if (const TransportRow* row = find_transport(wanted); row != nullptr && !row->opens_late)
    return false;
  return !all_reach_all(entries, topology, wanted);
}

}  // namespace ringdist
