#include "engine/describe_formed.h"

#include <map>

#include "os/network_interfaces.h"
#include "transport/ucx_plugin.h"

namespace ringdist {
namespace {

// "ranks 0-3 on host a, ranks 4-7 on host b"
std::string format_hosts(const std::vector<RankInfo>& entries, const Topology& topology) {
  std::string out;
  for (const std::vector<int>& ranks : topology.hosts)
    out +=
        (out.empty() ? "" : ", ") + format_ranks(ranks) + " on host " + entries[ranks[0]].host_name;
  return out;
}

// The name of the interface with that "ip:port", or the address itself.
std::string format_interface(const std::string& address) {
  const std::string ip = address.substr(0, address.rfind(':'));
  if (const auto known = list_interfaces(); known.ok())
    for (const NetworkInterface& one : known.value())
      if (ip == one.address || ip == "[" + one.address + "]") return one.name;
  return ip;
}

std::string format_links(const std::vector<GroupMember>& members, int rank) {
  std::map<std::string_view, std::vector<int>> reached;
  for (int peer = 0; peer < static_cast<int>(members.size()); ++peer)
    if (const Transport* transport = members[peer].transport; transport && peer != rank)
      reached[transport->name()].push_back(peer);
  std::string out;
  for (const auto& [name, ranks] : reached)
    out += (out.empty() ? ", over " : ", ") + std::string(name) + " to " + format_ranks(ranks);
  return out;
}

std::string format_changes(const Config& config) {
  std::string out;
  for (const Config::Variable& one : config.variables())
    if (one.value != one.default_value) out += ", " + one.name + "=" + one.value;
  return out;
}

}  // namespace

std::string format_ranks(const std::vector<int>& ranks) {
  std::string out = ranks.size() == 1 ? "rank" : "ranks";
  for (size_t i = 0; i < ranks.size();) {
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two in a row are no shorter as a range
    out += " " + std::to_string(ranks[i]);
    if (last > i) out += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return out;
}

std::string describe_formed(const std::string& name, const Config& config,
                            const std::vector<RankInfo>& entries,
                            const GroupDescriptor& membership) {
  const int rank = membership.rank;
  std::string text = "group '" + name + "' is formed: rank " + std::to_string(rank) + " of " +
                     std::to_string(entries.size()) + ", " +
                     format_hosts(entries, membership.topology) + ", interface " +
                     format_interface(entries[rank].tcp_address) +
                     format_links(membership.members, rank);
  if (!loaded_ucx_path().empty())
    if (const auto plugin = load_ucx(config.ucx == "system"); plugin.ok())
      text += ", UCX " + plugin.value()->info().version + " (" + config.ucx + ")";
  return text + format_changes(config);
}

}  // namespace ringdist
