#include "control/connection_demand.h"

#include <algorithm>

#include "control/control_frames.h"

namespace ringdist {

bool ConnectionDemand::is_monitored(uint64_t process) const {
  const ControlPeer* peer = processes_.find(process);
  return (peer != nullptr && peer->proven) || groups_.is_monitored(process);
}

// The second loop runs over a copy of the ids, because it forgets peers.
void ConnectionDemand::update_connections() {
  sender_.for_each([this](ControlConnection& connection) {
    if (connection.open()) update_connections(connection);
  });
  for (const uint64_t process : processes_.ids()) {
    const bool tried = std::ranges::any_of(kLinkKinds, [&](LinkKind kind) {
      return connections_view_.is_connecting_or_open(process, kind);
    });
    if (!tried && !needed(process)) processes_.forget(process);
  }
}

void ConnectionDemand::drop(uint64_t process) {
  sender_.for_each([&](ControlConnection& connection) {
    if (connection.peer == process) sender_.close_after_output(connection);
  });
  processes_.forget(process);
}

void ConnectionDemand::update_connections(ControlConnection& c) {
  bool need = needed(c.peer);
  if (need) c.was_needed = true;
  // A connection that a peer opened is the peer's to give up: the group may not exist here yet.
  if (!c.was_needed) need = c.peer_needs;
  if (need != c.needed) {
    const std::byte value{need};
    sender_.send(c, make_frame(FrameType::kNeed, ConstBytes{&value, 1}));
    c.needed = need;
  }
  if (!c.needed && !c.peer_needs && id_ < c.peer) sender_.close(c);
}

void ControlDialer::want(uint64_t id, LinkKind kind, bool first, TimePoint now) {
  if (history_.departed(id) || connections_view_.is_connecting_or_open(id, kind)) return;
  ControlPeer& peer = processes_[id];
  PeerLink& link = peer.link(kind);
  link.want(now);
  if (!link.may_dial(first, now)) return;
  link.dialed(now);
  auto [address, nonce, source] = groups_.address_of(id, kind);
  if (kind == LinkKind::kLocal && nonce == 0) address = peer.unix_name;  // a host proof
  connections_view_.dial(kind, id, address, nonce, source);
}

void ControlDialer::keep_linked(const ControlGroup& group, TimePoint now, bool ends) {
  const LinkTopology& roster = group.roster;
  for (const uint64_t peer : roster.local_peers())
    if (!ends) want(peer, LinkKind::kLocal, roster.dials_first(peer), now);
  // A representative that is about to end forwards little, so the next process takes its place.
  const auto departed = [this](uint64_t id) {
    return history_.departed(id) || processes_.exiting(id);
  };
  for (const int host : roster.neighbours())
    for (const uint64_t peer : roster.links_to(host, departed))
      want(peer, LinkKind::kTcp, ends || roster.dials_first(peer), now);
}

}  // namespace ringdist
