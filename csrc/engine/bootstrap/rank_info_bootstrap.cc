#include "engine/bootstrap/rank_info_bootstrap.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/describe.h"
#include "base/log.h"
#include "engine/bootstrap/group_bootstrap.h"
#include "os/network_interfaces.h"
#include "os/socket.h"
#include "transport/registry.h"

namespace ringdist {
namespace {

// Recognizes addresses with and without a port.
bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("::1");
}

// Returns the address without its port, in the form that resolvers accept.
std::string ip_of(const std::string& address) {
  const std::string ip = address.substr(0, address.rfind(':'));
  return ip.starts_with('[') ? ip.substr(1, ip.size() - 2) : ip;
}

// Returns the host that the rank claims, which can be verified. A rank without AF_UNIX sockets
// cannot prove it, so it counts as a host of its own.
std::string claim(const RankInfo& entry) {
  return entry.host_key + (entry.unix_name.empty() ? std::to_string(entry.context_id) : "");
}

// Returns the members in the form that the control plane uses.
std::vector<ControlMember> control_members(const std::vector<RankInfo>& entries,
                                           const Topology& topology) {
  std::vector<ControlMember> out;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const RankInfo& entry = entries[rank];
    out.push_back({static_cast<int>(rank), entry.context_id, topology.host_of[rank],
                   entry.unix_name, entry.tcp_address, entry.pid, entry.host_name});
  }
  return out;
}

// Returns the user that the process runs as; nothing if it does not listen.
std::optional<uid_t> user_of(const RankInfo& process) {
  const ConnectAttempt attempt = connect_unix(process.unix_name);
  if (attempt.failure) return std::nullopt;
  const auto who = peer_credentials(attempt.fd);
  return who.ok() ? std::optional(who.value().uid) : std::nullopt;
}

// Error for a rank on the host of another, where one of the two did not answer the other. Finds out
// whether they run as different users.
Error separated(const std::vector<RankInfo>& entries, int rank, int other, int me) {
  const auto name = [&](int one) { return describe_rank(one, entries[one].where()) + " "; };
  for (const int one : {rank, other}) {
    const auto user = one == me ? std::nullopt : user_of(entries[one]);
    if (!user || *user == geteuid()) continue;
    return Error(ErrorKind::kSystem,
                 name(one) + "runs as uid " + std::to_string(*user) + ", " + name(me) + "as uid " +
                     std::to_string(geteuid()) +
                     ": ranks of one host must run as one user, or set RINGDIST_SOCKET_IFNAME to "
                     "an interface other than the loopback")
        .blame(one);
  }
  return Error(ErrorKind::kPeerLost, name(rank) + "is lost: " + std::string(kClosedByPeer) +
                                         "it does not answer on its control socket, though it " +
                                         "lies on the host of rank " + std::to_string(other) +
                                         ": its process has most likely died")
      .blame(rank);
}

using Names = std::vector<std::string>;

// Returns the names of published transports that reach other processes, sorted.
Names usable(const RankInfo& entry, const std::string& wanted) {
  Names out;
  for (const auto& [name, address] : entry.transports)
    if (find_transport(name) != nullptr && is_wanted(wanted, name)) out.push_back(name);
  std::ranges::sort(out);
  return out;
}

// Returns true if two sorted lists have a transport in common that connects their hosts.
bool meet(const Names& one, const Names& other, bool same_host) {
  return std::ranges::any_of(one, [&](const std::string& name) {
    return (same_host || !find_transport(name)->within_host) &&
           std::ranges::binary_search(other, name);
  });
}

// Returns true if each pair of ranks has a common transport that connects their hosts. Compares
// kinds of ranks rather than ranks, since most ranks of a host have the same transports.
bool all_reach_all(const std::vector<RankInfo>& entries, const Topology& topology,
                   const std::string& wanted) {
  std::map<std::pair<size_t, Names>, int> kinds;  // number of ranks with those transports, by host
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

RankInfoBootstrap::RankInfoBootstrap(std::shared_ptr<Context> context,
                                     const CommunicatorOptions& options, TimePoint deadline)
    : GroupBootstrap(std::move(context), options.name, options.rank, options.size, deadline),
      options_(options) {}

Error RankInfoBootstrap::choose_network() {
  if (network_) return {};
  const auto network = context().network(options_.store_host);
  if (network.ok()) network_ = network.value();
  return network.error();
}

Result<RankInfo> RankInfoBootstrap::own_entry(bool late) {
  if (Error error = choose_network()) return error;
  auto entry = context().entry(*network_, late, options_.config.transport);
  if (!entry.ok()) return entry;
  entry.value().size = size();
  options_.state_in(entry.value());
  return entry;
}

bool RankInfoBootstrap::spans_hosts() const {
  return std::ranges::any_of(
      entries_, [&](const RankInfo& one) { return one.host_key != entries_[0].host_key; });
}

void RankInfoBootstrap::correct_network() {
  if (!network_->guessed) return;
  const auto begin = entries_.begin();
  auto known = std::ranges::find_if(entries_, [](const RankInfo& one) { return !one.guessed; });
  if (known == entries_.end())
    known = std::ranges::find_if(entries_,
                                 [](const RankInfo& one) { return !is_loopback(one.tcp_address); });
  if (known - begin == rank()) return;
  const auto better = context().network(known == entries_.end() ? "" : ip_of(known->tcp_address));
  if (better.ok()) network_ = better.value();
}

// Without AF_UNIX sockets ranks cannot prove that they share a host, so such ranks are not
// compared.
Error RankInfoBootstrap::check_separated(const Topology& topology) const {
  if (topology.hosts.size() < 2) return {};
  for (int one = 0; one < size(); ++one)
    for (int other = 0; other < one; ++other)
      if (entries_[one].host_key == entries_[other].host_key &&
          is_loopback(entries_[one].tcp_address) && !topology.same_host(one, other) &&
          !entries_[one].unix_name.empty() && !entries_[other].unix_name.empty())
        return separated(entries_, one, other, rank());
  return {};
}

// Other hosts cannot reach a loopback address, but processes of this host can. So an attempt to
// connect would not show the mistake on all ranks.
Error RankInfoBootstrap::check_addresses() const {
  if (!spans_hosts()) return {};
  for (int one = 0; one < size(); ++one) {
    const RankInfo& entry = entries_[one];
    if (!is_loopback(entry.tcp_address)) continue;
    auto candidates = list_interfaces();
    return Error(ErrorKind::kSystem,
                 describe_rank(one, entry.where()) + " offers the loopback address " +
                     entry.tcp_address +
                     " in a group of several hosts; set RINGDIST_SOCKET_IFNAME there. This " +
                     "rank's interfaces: " +
                     (candidates.ok() ? format_interfaces(candidates.value())
                                      : candidates.error().message()))
        .blame(one);
  }
  return {};
}

Error RankInfoBootstrap::check_room(uint64_t nonce) {
  std::vector<ContextId> here;
  for (const RankInfo& entry : entries_)
    if (entry.host_key == entries_[rank()].host_key) here.push_back(entry.context_id);
  const Error error = context().room_for(here);
  if (!error) return error;
  flood(abort_notice(nonce, /*generation=*/0, rank(), /*op=*/0, error));
  introduce(nonce);
  return error;
}

Topology RankInfoBootstrap::claimed_topology() const {
  std::vector<std::vector<int>> hosts;
  std::map<std::string, size_t> host_of;
  for (int one = 0; one < size(); ++one) {
    const auto [host, is_new] = host_of.emplace(claim(entries_[one]), hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[host->second].push_back(one);
  }
  return Topology::from_hosts(std::move(hosts), size());
}

// The control plane keeps a group that was left until all members have been notified.
void RankInfoBootstrap::introduce(uint64_t nonce) {
  CancellableDeadline over(Clock::now());
  over.cancelled = true;
  (void)context().control().connect_group(nonce, rank(),
                                          control_members(entries_, claimed_topology()), over);
}

Error RankInfoBootstrap::prove(const RankInfo& peer) {
  return context().prove_same_host(peer.context_id, peer.unix_name);
}

Result<ResolvedGroup> RankInfoBootstrap::alone(uint64_t nonce) {
  const auto transport = context().to_self();
  if (!transport.ok()) return transport.error();
  ResolvedGroup out;
  out.membership.nonce = nonce;
  out.membership.members.push_back({context().id(), transport.value(), ""});
  out.membership.topology = Topology::one_host(1);
  out.costs = options_.costs;
  return out;
}

// The transports of members are filled in later, by connect_members().
ResolvedGroup RankInfoBootstrap::found(uint64_t nonce, Topology topology) const {
  ResolvedGroup out;
  GroupDescriptor& membership = out.membership;
  membership.rank = rank();
  membership.nonce = nonce;
  out.costs = entries_[0].costs;
  membership.cost_source =
      out.costs.describe() + (out.costs.file.empty() ? "" : ", a file of rank 0");
  membership.topology = std::move(topology);
  for (const RankInfo& entry : entries_)
    membership.members.push_back({entry.context_id, nullptr, entry.where()});
  out.processes = control_members(entries_, membership.topology);
  return out;
}

// Goes on after a member that cannot be reached, so that the others are connected when the error is
// reported.
Error RankInfoBootstrap::connect_members(ResolvedGroup& formed) {
  Error unreachable;
  if (Error error = choose_network()) return error;
  for (int peer = 0; peer < size(); ++peer) {
    const bool same_host = formed.membership.topology.same_host(rank(), peer);
    auto transport =
        context().reach(entries_[peer], same_host, options_.config.transport, *network_);
    if (transport.ok())
      formed.membership.members[peer].transport = transport.value();
    else if (!unreachable)
      unreachable = transport.error().prefixed("rank " + std::to_string(peer) + ": ").blame(peer);
  }
  return unreachable;
}

void RankInfoBootstrap::log_formed(const ResolvedGroup& formed) const {
  log(LogLevel::kInfo, describe_formed(name(), options_.config, entries_, formed.membership));
}

bool needs_late_transports(const std::vector<RankInfo>& entries, const Topology& topology,
                           const std::string& wanted) {
  const bool helps = std::ranges::any_of(transports(), [&wanted](const TransportRow& row) {
    return row.opens_late && is_wanted(wanted, row.name);
  });
  if (!helps) return false;
  return !all_reach_all(entries, topology, wanted);
}

}  // namespace ringdist
