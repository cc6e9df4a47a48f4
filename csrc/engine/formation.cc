// How a Communicator finds its peers: the part of it that waits for others, on the task pool.
#include <unistd.h>

#include "base/closed_by_peer.h"
#include "base/log.h"
#include "engine/communicator.h"
#include "engine/formed_text.h"
#include "os/interfaces.h"
#include "os/random.h"
#include "os/socket.h"

namespace ringdist {
namespace {

constexpr auto kProofTime = std::chrono::seconds(2);

bool is_loopback(const std::string& address) {
  return address.starts_with("127.") || address.starts_with("[::1]") || address.starts_with("::1");
}

void log_phase(const std::string& name, const std::string& text) {
  log(LogLevel::kDebug, "group '" + name + "': " + text);
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
  const auto name = [&](int one) {
    return "rank " + std::to_string(one) + " (" + entries[one].where() + ") ";
  };
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

// Processes of other hosts cannot reach a loopback address; this host's own can, so it must be
// said.
Error Communicator::check_addresses(const std::vector<Entry>& entries,
                                    const Topology& topology) const {
  if (topology.hosts.size() < 2) return {};
  for (size_t rank = 0; rank < entries.size(); ++rank)
    for (size_t other = 0; other < rank; ++other)
      if (entries[rank].host_key == entries[other].host_key &&
          is_loopback(entries[rank].tcp_address) &&
          !topology.same_host(static_cast<int>(rank), static_cast<int>(other)))
        return separated(entries, static_cast<int>(rank), static_cast<int>(other), this->rank());
  for (size_t rank = 0; rank < entries.size(); ++rank) {
    if (!is_loopback(entries[rank].tcp_address)) continue;
    auto candidates = list_interfaces();
    return Error(ErrorKind::kSystem,
                 "rank " + std::to_string(rank) + " (" + entries[rank].where() +
                     ") offers the loopback address " + entries[rank].tcp_address +
                     " in a group of several hosts; set RINGDIST_SOCKET_IFNAME there. This " +
                     "rank's interfaces: " +
                     (candidates.ok() ? format_interfaces(candidates.value()) : "unknown"))
        .blame(static_cast<int>(rank));
  }
  return {};
}

Result<std::vector<GroupMember>> Communicator::find_members(uint64_t& nonce) {
  log_phase(name(), "rank " + std::to_string(rank()) + " of " + std::to_string(size()) +
                        " is looking for the others");
  auto entries = rendezvous_.collect(patience_);
  if (!entries.ok()) return entries.error();
  log_phase(name(), "all " + std::to_string(size()) + " ranks are in the store");
  nonce = entries.value()[0].nonce;
  Control& control = context_->control();
  const auto prove = [&](const Entry& peer) {
    return control.prove_same_host(peer.context_id, peer.unix_name,
                                   std::min(patience_.deadline.load(), Clock::now() + kProofTime));
  };
  auto topology = rendezvous_.agree_on_hosts(
      entries.value(), prove, [this](const Entry& peer) { return context_->lost(peer.context_id); },
      patience_);
  if (!topology.ok()) return topology.error();
  if (Error error = check_addresses(entries.value(), topology.value())) return error;
  log_phase(name(), "hosts agreed on: " + std::to_string(topology.value().hosts.size()));
  nonce_ = nonce;  // from here on the control plane must be told of our end
  Lane& lane = context_->lane();
  lane.post([&lane, group = group_, nonce] { lane.executor().expect(group, nonce); });
  // Before all have met: after that a member may be done, and gone.
  Error unreachable;
  std::vector<GroupMember> members;
  for (const Entry& entry : entries.value()) {
    const int peer = static_cast<int>(members.size());
    auto transport =
        context_->reach(entry, topology.value().same_host(rank(), peer), options_.config.transport);
    if (!transport.ok() && !unreachable)
      unreachable = transport.error().prefixed("rank " + std::to_string(peer) + ": ").blame(peer);
    members.push_back(
        {entry.context_id, transport.ok() ? transport.value() : nullptr, entry.where()});
  }
  if (Error error = control.connect_group(
          nonce, rank(), control_members(entries.value(), topology.value()), patience_))
    return error;
  log_phase(name(), "linked to the others' control planes, as they are");
  if (unreachable) return unreachable;
  log(LogLevel::kInfo,
      describe_formed(name(), rank(), options_.config, entries.value(), topology.value(), members));
  return members;
}

// Others may be waiting for us in the store, or be ready and wait for our part of an op.
void Communicator::tell_set_up_failed(uint64_t nonce, const Error& error) {
  if (patience_.cancelled) return;                                 // close() has said so
  if (nonce == 0) return withdraw(error.kind(), error.message());  // an abort's word stays
  Notice notice;
  const Error first = failure();  // abort() may have been before
  const Error& cause = first ? first : error;
  notice.error_kind = cause.kind();
  notice.nonce = nonce;
  notice.rank = rank();
  notice.ranks = cause.ranks();
  notice.text = cause.message();
  context_->control().flood(notice.encode());
}

void Communicator::set_up() {
  Lane& lane = context_->lane();
  uint64_t nonce = 0;
  Result<std::vector<GroupMember>> members = std::vector<GroupMember>(1);
  if (size() == 1)
    nonce = random_id();
  else
    members = find_members(nonce);
  if (!members.ok()) {
    tell_set_up_failed(nonce, members.error());
    lane.post(
        [group = group_, error = members.error()] { group->fail(error, /*tell_others=*/false); });
    return;
  }
  lane.post([&lane, group = group_, nonce, members = members.value()] {
    lane.executor().make_ready(group, nonce, members);
  });
}

}  // namespace ringdist
