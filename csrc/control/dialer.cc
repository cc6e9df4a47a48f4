#include "control/dialer.h"

namespace ringdist {

void ControlDialer::want(uint64_t id, LinkKind kind, bool first, TimePoint now) {
  if (history_.departed(id) || connections_view_.is_connecting_or_open(id, kind)) return;
  ControlPeer& peer = processes_[id];
  PeerLink& link = peer.link(kind);
  link.want(now);
  if (!link.may_dial(first, now)) return;
  link.dialed(now);
  auto [address, nonce] = groups_.address_of(id, kind);
  if (kind == LinkKind::kLocal && !groups_.has(id)) address = peer.unix_name;
  connections_view_.dial(kind, id, address, nonce);
}

void ControlDialer::keep_linked(const ControlGroup& group, TimePoint now, bool ends) {
  const LinkTopology& roster = group.roster;
  for (const uint64_t peer : roster.local_peers())
    if (!ends) want(peer, LinkKind::kLocal, roster.dials_first(peer), now);
  // A representative that is about to end forwards little: the next process takes its place.
  const auto departed = [this](uint64_t id) {
    return history_.departed(id) || processes_.exiting(id);
  };
  for (const int host : roster.neighbours())
    for (const uint64_t peer : roster.links_to(host, departed))
      want(peer, LinkKind::kTcp, ends || roster.dials_first(peer), now);
}

}  // namespace ringdist
