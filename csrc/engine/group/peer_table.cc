#include "engine/group/peer_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/describe.h"

namespace ringdist {

std::optional<uint64_t> Peer::last_op() const {
  return presence_ == State::kExiting ? std::nullopt : last_op_;
}

void Peer::mark_left(uint64_t last_op, TimePoint now) {
  last_op_ = last_op;
  departed_at_ = now;
  if (presence_ == State::kHere) presence_ = State::kLeft;
}

void Peer::mark_exiting(uint64_t last_op, TimePoint now) {
  last_op_ = last_op;
  departed_at_ = now;
  if (presence_ == State::kHere) presence_ = State::kExiting;
}

bool Peer::mark_exited(TimePoint now) {
  if (departed()) return false;
  presence_ = State::kExited;
  last_op_ = last_op_.value_or(0);
  departed_at_ = now;
  return true;
}

bool Peer::mark_lost(const Error& cause, TimePoint now) {
  if (presence_ == State::kExiting) return mark_exited(now);
  if (departed()) return false;
  presence_ = State::kLost;
  loss_ = cause;
  departed_at_ = now;
  return true;
}

void Peer::break_connection(const Error& cause, TimePoint now) {
  if (broken()) return;
  broken_since_ = now;
  breakage_ = cause;
}

PeerTable::PeerTable(const GroupDescriptor& membership) : rank_(membership.rank) {
  peers_.reserve(membership.members.size());
  for (const GroupMember& member : membership.members) peers_.emplace_back(member);
}

int PeerTable::first_leaver() const {
  int first = -1;
  for (int peer = 0; peer < size(); ++peer) {
    const auto last = (*this)[peer].last_op();
    if (last && (first < 0 || *last < *(*this)[first].last_op())) first = peer;
  }
  return first;
}

void PeerTable::connect_anew(TimePoint now) {
  for (Peer& peer : peers_) {
    const auto& [context, transport, where] = peer.member;
    if (!transport || transport->reaches(context)) continue;
    transport->renew(context);
    if (!transport->reaches(context))
      peer.break_connection(Error(ErrorKind::kPeerLost, "the connection broke before the first op"),
                            now);
  }
}

bool PeerTable::any_in_doubt() const {
  return std::ranges::any_of(peers_, [](const Peer& peer) {
    return peer.broken() && peer.presence() == Peer::State::kHere;
  });
}

Error PeerTable::departure(int peer) const {
  const Peer& p = (*this)[peer];
  if (p.loss()) return p.loss();
  const uint64_t last = p.last_op().value_or(0);
  const bool exited = p.presence() == Peer::State::kExited;
  return Error(ErrorKind::kPeerLost,
               describe_rank(peer) + " has left the group" +
                   (last > 0 ? " after op #" + std::to_string(last) : "") + ": " +
                   std::string(kClosedByPeer) +
                   (exited ? "its process exited without destroying the group (an exception, "
                             "sys.exit() or the end of its script)"
                           : "it destroyed the group"))
      .blame(peer);
}

std::string PeerTable::describe_rank(int peer) const {
  const bool known = peer >= 0 && peer < size();
  return ringdist::describe_rank(peer, known ? (*this)[peer].member.where : "");
}

std::string PeerTable::links() const {
  std::map<std::string_view, std::string> ranks;
  for (int peer = 0; peer < size(); ++peer)
    if (const Transport* transport = (*this)[peer].member.transport; transport && peer != rank_)
      ranks[transport->name()] += " " + std::to_string(peer);
  std::string out;
  for (const auto& [name, of_ranks] : ranks)
    out += (out.empty() ? ", over " : ", ") + std::string(name) + " to rank" + of_ranks;
  return out;
}

}  // namespace ringdist
