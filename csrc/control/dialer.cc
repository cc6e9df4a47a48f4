#include "control/dialer.h"

namespace ringdist {

void ControlDialer::want(uint64_t id, LinkKind kind, bool first, TimePoint now) {
  if (ledger_.gone(id) || reach_.tried(id, kind)) return;
  ControlPeer& peer = processes_[id];
  PeerLink& line = peer.line(kind);
  line.want(now);
  if (!line.may_dial(first, now)) return;
  line.dialed(now);
  auto [address, nonce] = groups_.address_of(id, kind);
  if (kind == LinkKind::kLocal && !groups_.has(id)) address = peer.unix_name;
  reach_.dial(kind, id, address, nonce);
}

void ControlDialer::keep_linked(const ControlGroup& group, TimePoint now, bool ends) {
  const LinkTopology& roster = group.roster;
  for (const uint64_t peer : roster.local_peers())
    if (!ends) want(peer, LinkKind::kLocal, roster.dials_first(peer), now);
  // A representative that is about to end forwards little: the next process takes its place.
  const auto gone = [this](uint64_t id) { return ledger_.gone(id) || processes_.exiting(id); };
  for (const int host : roster.neighbours())
    for (const uint64_t peer : roster.links_to(host, gone))
      want(peer, LinkKind::kTcp, ends || roster.dials_first(peer), now);
}

}  // namespace ringdist
