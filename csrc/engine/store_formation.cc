#include "engine/store_formation.h"

#include <unistd.h>

#include <utility>

#include "base/closed_by_peer.h"
#include "base/describe.h"
#include "base/log.h"
#include "engine/formed_text.h"
#include "engine/reachability.h"
#include "os/interfaces.h"
#include "os/random.h"
#include "os/socket.h"
#include "rendezvous/decline.h"

namespace ringdist {
namespace {

constexpr auto kProofTime = std::chrono::seconds(2);

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("::1");
}

std::vector<ControlMember> control_members(const std::vector<Entry>& entries,
                                           const Topology& topology) {
  std::vector<ControlMember> out;
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    const Entry& entry = entries[rank];
    out.push_back({static_cast<int>(rank), entry.context_id, topology.host_of[rank],
                   entry.unix_name, entry.tcp_address, entry.pid, entry.host_name});
  }
  return out;
}

// The user as whom it listens, if it does.
std::optional<uid_t> user_of(const Entry& process) {
  const Connecting attempt = connect_unix(process.unix_name);
  if (attempt.failure) return std::nullopt;
  const auto who = peer_credentials(attempt.fd);
  return who.ok() ? std::optional(who.value().uid) : std::nullopt;
}

// A rank lies on the host of another, and one of the two did not answer the other.
Error separated(const std::vector<Entry>& entries, int rank, int other, int me) {
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

}  // namespace

StoreFormation::StoreFormation(std::shared_ptr<Context> context, const CommunicatorOptions& options,
                               Decided decided)
    : Formation(std::move(context), options.name, options.rank, options.size,
                Clock::now() + options.timeout),
      options_(options),
      decided_(std::move(decided)),
      rendezvous_(options.store, options.rank, options.members) {}

// The group's name, where this rank gives it one.
uint64_t StoreFormation::drawn() const { return decided_.nonce ? decided_.nonce : random_id(); }

Error StoreFormation::publish() {
  if (size() == 1) return {};
  auto entry = context().entry();
  if (!entry.ok()) {
    (void)decline(*options_.store, rank(), options_.members, entry.error());
    return entry.error();
  }
  entry.value().size = size();
  entry.value().options_hash = options_.config.options_hash();
  entry.value().options = options_.config.options_text();
  entry.value().nonce = rank() == 0 ? drawn() : 0;
  entry.value().costs = options_.costs;
  return rendezvous_.publish(entry.value());
}

void StoreFormation::leave_word(ErrorKind kind, const std::string& why, bool process_ends) {
  (void)rendezvous_.withdraw(kind, why, process_ends);
}

// Processes of other hosts cannot reach a loopback address; this host's own can, so it must be
// said.
Error StoreFormation::check_addresses(const Topology& topology) const {
  if (topology.hosts.size() < 2) return {};
  for (int one = 0; one < size(); ++one)
    for (int other = 0; other < one; ++other)
      if (entries_[one].host_key == entries_[other].host_key &&
          is_loopback(entries_[one].tcp_address) && !topology.same_host(one, other))
        return separated(entries_, one, other, rank());
  for (int one = 0; one < size(); ++one) {
    const Entry& entry = entries_[one];
    if (!is_loopback(entry.tcp_address)) continue;
    auto candidates = list_interfaces();
    return Error(ErrorKind::kSystem,
                 describe_rank(one, entry.where()) + " offers the loopback address " +
                     entry.tcp_address +
                     " in a group of several hosts; set RINGDIST_SOCKET_IFNAME there. This " +
                     "rank's interfaces: " +
                     (candidates.ok() ? format_interfaces(candidates.value()) : "unknown"))
        .blame(one);
  }
  return {};
}

Error StoreFormation::find_missing(TimePoint begun) {
  const std::chrono::duration<double> patience(context().config().peer_timeout);
  const auto lost = [](int one, const std::string& why) {
    return Error(ErrorKind::kPeerLost, "rank " + std::to_string(one) + " is lost: " + why)
        .blame(one);
  };
  const int size = static_cast<int>(decided_.members.size());
  for (int one = 0; one < size; ++one)
    if (const Error error = context().lost(decided_.members[static_cast<size_t>(one)]))
      return lost(one, error.message());
  if (Clock::now() - begun < patience) return {};
  for (int one = decided_.stay; one < size; ++one) {
    const auto has_come = rendezvous_.has_come(one);
    if (has_come.ok() && !has_come.value())
      return lost(one, "it wanted to become a member, and did not come");
  }
  return {};
}

Error StoreFormation::check_room() {
  std::vector<ContextId> here;
  for (const Entry& entry : entries_)
    if (entry.host_key == entries_[rank()].host_key) here.push_back(entry.context_id);
  const Error error = context().room_for(here);
  if (error) flood(abort_notice(entries_[0].nonce, /*generation=*/0, rank(), /*op=*/0, error));
  return error;
}

Result<FoundGroup> StoreFormation::find() {
  FoundGroup formed;
  Membership& membership = formed.membership;
  membership.rank = rank();
  if (size() == 1) {
    membership.nonce = drawn();
    membership.members.push_back({context().id(), nullptr, ""});
    membership.topology = Topology::one_host(1);
    formed.costs = options_.costs;
    return formed;
  }
  log_phase("rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
            " is looking for the others");
  const auto missing = [this, begun = Clock::now()] { return find_missing(begun); };
  auto entries = rendezvous_.collect(patience(), missing);
  if (!entries.ok()) return entries.error();
  entries_ = std::move(entries.value());
  log_phase("all " + std::to_string(size()) + " ranks are in the store");
  if (Error error = check_room()) return error;
  const auto prove = [&](const Entry& peer) {
    return context().control().prove_same_host(
        peer.context_id, peer.unix_name,
        std::min(patience().deadline.load(), Clock::now() + kProofTime));
  };
  const auto lost = [this](const Entry& peer) { return context().lost(peer.context_id); };
  auto topology = rendezvous_.agree_on_hosts(entries_, prove, lost, patience());
  if (!topology.ok()) return topology.error();
  if (Error error = check_addresses(topology.value())) return error;
  log_phase("hosts agreed on: " + std::to_string(topology.value().hosts.size()));
  if (needs_late_transports(entries_, topology.value(), options_.config.transport)) {
    log_phase("opens the transports that reach the others");
    const auto addresses = context().all_addresses();
    if (!addresses.ok()) return addresses.error();
    if (Error error = rendezvous_.exchange_addresses(addresses.value(), entries_, lost, patience()))
      return error;
  }
  membership.nonce = entries_[0].nonce;
  formed.costs = entries_[0].costs;
  membership.plans_by =
      formed.costs.describe() + (formed.costs.file.empty() ? "" : ", a file of rank 0");
  membership.topology = std::move(topology.value());
  for (const Entry& entry : entries_)
    membership.members.push_back({entry.context_id, nullptr, entry.where()});
  formed.processes = control_members(entries_, membership.topology);
  return formed;
}

Error StoreFormation::reach(FoundGroup& formed) {
  Error unreachable;
  for (int peer = 0; peer < size(); ++peer) {
    const bool same_host = formed.membership.topology.same_host(rank(), peer);
    auto transport = context().reach(entries_[peer], same_host, options_.config.transport);
    if (transport.ok())
      formed.membership.members[peer].transport = transport.value();
    else if (!unreachable)
      unreachable = transport.error().prefixed("rank " + std::to_string(peer) + ": ").blame(peer);
  }
  return unreachable;
}

void StoreFormation::log_formed(const FoundGroup& formed) const {
  log(LogLevel::kInfo, describe_formed(name(), options_.config, entries_, formed.membership));
}

}  // namespace ringdist
