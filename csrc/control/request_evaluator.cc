#include "control/request_evaluator.h"

#include "base/closed_by_peer.h"
#include "base/describe.h"

namespace ringdist {
namespace {

std::string describe_member(const ControlMember& member) {
  return describe_rank(member.rank, describe_process(member.pid, member.host_name));
}

}  // namespace

std::optional<Error> RequestEvaluator::proof(uint64_t id, const std::string& who, bool expired) {
  if (connections_view_.open(id, LinkKind::kLocal)) return Error();
  if (history_.departed(id)) return Error(ErrorKind::kPeerLost, who + " is gone");
  const PeerLink& link = processes_[id].link(LinkKind::kLocal);
  if (!link.rejection().empty())
    return Error(ErrorKind::kPeerLost, who + " refused: " + link.rejection());
  if (link.refused())
    return Error(ErrorKind::kPeerLost, who + " does not share this host: " + link.failure());
  if (!expired) return std::nullopt;
  return Error(ErrorKind::kTimeout, who + " did not answer on its local control socket" +
                                        (link.failure().empty() ? "" : ": " + link.failure()));
}

std::optional<Error> RequestEvaluator::links(uint64_t nonce, const ControlGroup& group,
                                             bool expired) {
  // Of who has left, or dies later, the engine tells, after what it had sent.
  for (const auto& [id, member] : group.roster.processes()) {
    const auto why = history_.lost(id);
    // Of ourselves nobody else tells: others that gave us up do not talk to us.
    if (!why || (id != id_ && formation_barrier_.has(nonce, id))) continue;
    return Error(ErrorKind::kPeerLost,
                 describe_member(member) + " is lost: " + std::string(kClosedByPeer) + *why)
        .blame(member.rank);
  }
  bool complete = true;
  const auto check = [&](uint64_t id, LinkKind kind) -> std::optional<Error> {
    if (connections_view_.reached(id, kind) || history_.departed(id)) return std::nullopt;
    complete = false;
    return missing(group, id, kind, expired);
  };
  for (const uint64_t id : group.roster.local_peers())
    if (auto error = check(id, LinkKind::kLocal)) return error;
  const auto departed = [this](uint64_t id) { return history_.departed(id); };
  for (const int host : group.roster.neighbours())
    for (const uint64_t id : group.roster.links_to(host, departed))
      if (auto error = check(id, LinkKind::kTcp)) return error;
  return complete ? std::optional(Error()) : std::nullopt;
}

// The error for a peer that is not connected yet, if it is time for one.
std::optional<Error> RequestEvaluator::missing(const ControlGroup& group, uint64_t id,
                                               LinkKind kind, bool expired) {
  const ControlMember& member = group.roster.member(id);
  const PeerLink& link = processes_[id].link(kind);
  const bool local = kind == LinkKind::kLocal;
  const bool refused = !link.rejection().empty() || (local && link.deserted());
  if (!refused && !expired) return std::nullopt;
  const std::string who = describe_member(member);
  const std::string& address = local ? member.unix_name : member.tcp_address;
  if (link.rejection().empty() && refused)
    return Error(ErrorKind::kPeerLost, who + " is lost: " + std::string(kClosedByPeer) +
                                           "nothing listens on its control socket " + address +
                                           ": its process died or exited")
        .blame(member.rank);
  const std::string seen = !link.rejection().empty() ? link.rejection() : link.failure();
  return Error(refused ? ErrorKind::kPeerLost : ErrorKind::kTimeout,
               who + " cannot be reached on its control socket " + address + ": " +
                   (seen.empty() ? "it did not connect in time" : seen))
      .blame(member.rank);
}

std::optional<Error> RequestEvaluator::formed(uint64_t nonce, const ControlGroup& group,
                                              bool expired) const {
  for (const auto& [id, member] : group.roster.processes()) {
    if (formation_barrier_.has(nonce, id) || history_.departed(id)) continue;
    if (!expired) return std::nullopt;
    return Error(ErrorKind::kTimeout,
                 describe_member(member) + " has not found all others of the group in time")
        .blame(member.rank);
  }
  return Error();
}

}  // namespace ringdist
