#include "control/control_requests.h"

#include <algorithm>
#include <utility>

#include "base/describe.h"
#include "control/control_report.h"

namespace ringdist {
namespace {

// Returns "rank 3 (pid 123 on host X)" or similar, for errors.
std::string describe_member(const ControlMember& member) {
  return describe_rank(member.rank, describe_process(member.pid, member.host_name));
}

}  // namespace

std::optional<Error> RequestEvaluator::proof(uint64_t id, const std::string& who, bool expired) {
  if (connections_view_.reached(id, LinkKind::kLocal)) return Error();
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
  // A member that has left, or dies after it has formed the group, is reported by the engine, once
  // the messages that it had sent have been read.
  for (const auto& [id, member] : group.roster.processes()) {
    const auto why = history_.lost(id);
    // The others do not talk to this process if they gave it up, so nobody else reports that.
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

using Kind = ControlRequest::Kind;

bool ControlRequests::accept(const ControlRequest& request) {
  if (stopped_)
    request.answer->set_value(stopped());
  else
    waiting_.push_back(request);
  return !stopped_;
}

void ControlRequests::prove(const ControlRequest& request, const std::string& unix_name) {
  if (!accept(request)) return;
  ControlPeer& peer = processes_[request.id];
  peer.unix_name = unix_name;
  peer.proven = true;
  peer.link(LinkKind::kLocal).forget_refusals();
}

std::vector<uint64_t> ControlRequests::proofs() const {
  std::vector<uint64_t> out;
  for (const ControlRequest& request : waiting_)
    if (request.kind == Kind::kProof) out.push_back(request.id);
  return out;
}

bool ControlRequests::proving(uint64_t process) const {
  return std::ranges::any_of(waiting_, [process](const ControlRequest& one) {
    return one.kind == Kind::kProof && one.id == process;
  });
}

// A request leaves the queue before its promise is set, because the caller's deadline may end with
// that.
void ControlRequests::answer_ready(TimePoint now) {
  for (size_t i = 0; i < waiting_.size();) {
    const auto answer = answer_to(waiting_[i], now);
    if (!answer) {
      ++i;
      continue;
    }
    const ControlRequest request = std::move(waiting_[i]);
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    const bool failed_proof = request.kind == Kind::kProof && *answer && !proving(request.id);
    if (ControlPeer* peer = processes_.find(request.id); failed_proof && peer != nullptr)
      peer->proven = false;
    request.answer->set_value(*answer);
  }
}

void ControlRequests::stop() {
  stopped_ = true;
  const Error why = stopped();
  for (const ControlRequest& request : std::exchange(waiting_, {})) request.answer->set_value(why);
}

std::optional<Error> ControlRequests::answer_to(const ControlRequest& request, TimePoint now) {
  if (request.kind == Kind::kGroup) return group_answer(request, now);
  const std::string who = name_of(request.id, groups_, processes_);
  return evaluator_.proof(request.id, who, request.deadline->expired(now));
}

std::optional<Error> ControlRequests::group_answer(const ControlRequest& request, TimePoint now) {
  ControlGroup* group = groups_.find(request.id);
  if (group == nullptr || group->left() || request.deadline->cancelled)
    return Error(ErrorKind::kAborted, "the group was destroyed while it connected");
  // A cancellation in between is seen the next time, and does not count as a timeout.
  const bool expired = request.deadline->expired(now);
  auto linked = evaluator_.links(request.id, *group, expired);
  if (!linked || *linked) return linked;
  if (!group->connected) {
    delegate_.on_linked(request.id);
    group->connect(now);
  }
  return evaluator_.formed(request.id, *group, expired);
}

}  // namespace ringdist
