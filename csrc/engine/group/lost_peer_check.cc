#include "engine/group/lost_peer_check.h"

#include <algorithm>
#include <string>

#include "base/describe.h"

namespace ringdist {

Error LostPeerCheck::lost_peer_error() const {
  for (int peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].loss() && lacks(peer)) return peers_[peer].loss();
  return {};
}

bool LostPeerCheck::lacks(int peer) const {
  const auto does = [peer](const OpExecution& run) {
    return run.waits_for(peer) || run.has_unsent_to(peer);
  };
  bool any = service_channel_.needs_all_members() || !collectives_.on_device().empty() ||
             std::ranges::any_of(collectives_.runs(),
                                 [&](const auto& entry) { return does(*entry.second); });
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, const OpExecution* run) {
    any |= run != nullptr ? does(*run) : op->request.envelope->peer == peer;
  });
  return any;
}

std::optional<LostPeerCheck::Departure> LostPeerCheck::departure_before(uint64_t number) const {
  const int first = peers_.first_leaver();
  if (first < 0 || number <= *peers_[first].last_op()) return std::nullopt;
  return Departure{*peers_[first].last_op() + 1, peers_.departure(first)};
}

Error LostPeerCheck::broken_link_error(TimePoint now) const {
  for (int peer = 0; peer < peers_.size(); ++peer) {
    const Peer& one = peers_[peer];
    if (!one.broken_for(kGrace, now) || one.loss()) continue;
    if (one.announced_last_op() && !waits_in_vain(peer, now)) continue;
    return Error(ErrorKind::kPeerLost, "the connection to " + peers_.describe_rank(peer) +
                                           " broke: " + one.breakage().message())
        .blame(peer);
  }
  return {};
}

// The peer has left and its connection is closed, but something that it sent to this rank has not
// arrived.
bool LostPeerCheck::waits_in_vain(int peer, TimePoint now) const {
  return std::ranges::any_of(collectives_.runs(), [&](const auto& entry) {
    const OpExecution& run = *entry.second;
    return entry.first <= *peers_[peer].announced_last_op() && run.waits_for(peer) &&
           now - run.last_progress() > kGrace;
  });
}

Error LostPeerCheck::stranded_op_error(TimePoint now) const {
  std::shared_ptr<Op> stranded;
  point_to_point_.for_each([&](const std::shared_ptr<Op>& op, const OpExecution* run) {
    if (waits_for_leaver(*op, run, now)) stranded = op;
  });
  if (!stranded) return service_channel_.needs_all_members() ? departure(now) : Error();
  const int peer = stranded->request.envelope->peer;
  if (peer != Envelope::kAnySource) return peers_.departure(peer);
  return Error(ErrorKind::kPeerLost,
               std::string(kClosedByPeer) + "all other ranks have left the group or died");
}

Error LostPeerCheck::departure(TimePoint now) const {
  for (int peer = 0; peer < peers_.size(); ++peer)
    if (peers_[peer].departed() && now - peers_[peer].departed_at() >= kGrace)
      return peers_.departure(peer);
  return {};
}

bool LostPeerCheck::waits_for_leaver(const Op& op, const OpExecution* run, TimePoint now) const {
  if (op.request.device_stream) return false;  // the other end's data may already be on the device
  const auto over = [&](int peer) {
    if (!peers_[peer].departed() || now - peers_[peer].departed_at() < kGrace) return false;
    return run == nullptr || now - run->last_progress() > kGrace;
  };
  const int other = op.source() >= 0 ? op.source() : op.request.envelope->peer;
  if (other >= 0) return over(other);
  for (int peer = 0; peer < peers_.size(); ++peer)
    if (peer != peers_.rank() && !over(peer)) return false;
  return true;
}

}  // namespace ringdist
