#include "engine/bootstrap/group_bootstrap.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/log.h"
#include "os/network_interfaces.h"
#include "transport/ucx_plugin.h"

namespace ringdist {

std::vector<ContextId> ResolvedGroup::contexts() const {
  std::vector<ContextId> out;
  for (const GroupMember& member : membership.members) out.push_back(member.context);
  return out;
}

// Hosts are numbered anew, in the order of their first rank in `ranks`.
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
    if (processes.empty()) continue;  // the group has one rank
    ControlMember process = processes[was];
    process.rank = rank;
    process.host = host->second;
    out.processes.push_back(std::move(process));
  }
  out.membership.topology = Topology::from_hosts(std::move(hosts), size);
  return out;
}

GroupBootstrap::GroupBootstrap(std::shared_ptr<Context> context, std::string name, int rank,
                               int size, TimePoint deadline)
    : context_(std::move(context)),
      name_(std::move(name)),
      rank_(rank),
      size_(size),
      deadline_(deadline) {}

void GroupBootstrap::log_phase(const std::string& text) const {
  log(LogLevel::kDebug, "group '" + name_ + "': " + text);
}

// Phases: nonce, members, transports, formation barrier. The nonce may be set before or after the
// members are found.
Result<ResolvedGroup> GroupBootstrap::form(const Named& named) {
  const auto name = [&](uint64_t nonce) {
    if (nonce_ != 0 || nonce == 0) return;
    nonce_ = nonce;
    named(nonce);
  };
  if (size_ > 1) name(known_nonce());
  auto found = resolve();
  if (!found.ok()) return found;
  ResolvedGroup& formed = found.value();
  know(formed);
  if (size_ == 1) return found;
  name(formed.membership.nonce);
  // Reported after the barrier: without this rank there, the others would wait for it until their
  // deadlines.
  const Error unreachable = connect_members(formed);
  if (Error error = connect(formed)) return on_member_error(error);
  log_phase("linked to the others' control planes, as they are");
  if (unreachable) return unreachable;
  log_formed(formed);
  return found;
}

void GroupBootstrap::run(const Named& named, const Ended& ended) {
  const auto outcome = [&]() -> Result<ResolvedGroup> {
    try {
      return form(named);
    } catch (...) {
      return current_exception_error();
    }
  }();
  try {
    ended(outcome);
  } catch (...) {
    promise_.set_value(current_exception_error());  // bootstraps of duplicates wait for it
    throw;
  }
  promise_.set_value(outcome);
  // Last, because it blocks on the store, and the group can run ops without it.
  if (outcome.ok()) remove_keys();
}

void GroupBootstrap::group_failed(const std::weak_ptr<GroupBootstrap>& formation, TaskPool& pool) {
  auto held = formation.lock();
  if (!held) return;
  if (held->known_nonce() != 0) held->shorten(Clock::now());
  // A progress thread must not hold the last reference, which owns a store.
  pool.run([held = std::move(held)] {});
}

void GroupBootstrap::withdraw(ErrorKind kind, const std::string& why, bool process_ends) {
  if (nonce_ == 0 && size_ > 1) publish_withdrawal(kind, why, process_ends);
}

void GroupBootstrap::announce_failure(const Error& cause) {
  const uint64_t nonce = nonce_;
  const bool leaves = deadline_.cancelled;
  if (nonce == 0 && leaves) return;  // cancel() was called by code that has withdrawn
  // The words of an earlier abort stay.
  if (nonce == 0) return withdraw(cause.kind(), cause.message());
  flood(leaves ? make_notice(leaves_, nonce, /*generation=*/0, rank_, /*op=*/0)
               : abort_notice(nonce, /*generation=*/0, rank_, /*op=*/0, cause));
}

void GroupBootstrap::flood(const Notice& notice) { context_->control().flood(notice.encode()); }

Error GroupBootstrap::connect(const ResolvedGroup& formed) {
  return context_->control().connect_group(nonce_, rank_, formed.processes, deadline_);
}

namespace {

// "ranks 0-3 on host a, ranks 4-7 on host b"
std::string format_hosts(const std::vector<RankInfo>& entries, const Topology& topology) {
  std::string out;
  for (const std::vector<int>& ranks : topology.hosts)
    out +=
        (out.empty() ? "" : ", ") + format_ranks(ranks) + " on host " + entries[ranks[0]].host_name;
  return out;
}

// Returns the name of the interface with the "ip:port" `address`, or the IP address if there is
// none.
std::string format_interface(const std::string& address) {
  std::string ip = address.substr(0, address.rfind(':'));
  if (const auto known = list_interfaces(); known.ok())
    for (const NetworkInterface& one : known.value())
      if (ip == one.address || ip == "[" + one.address + "]") return one.name;
  return ip;
}

// Returns ", over shm to ranks 1-3, over ucx to ranks 4-7" or the like.
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

// Returns the settings that are not defaults: ", RINGDIST_MEMORY=1GiB".
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
    if (last < i + 2) last = i;  // two adjacent ranks are no shorter as a range
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
