#include "control/dialer.h"

namespace ringdist {
namespace {

constexpr Duration kRedial = Milliseconds(50);
// How long the side that should accept waits before it dials itself.
constexpr Duration kGrace = Milliseconds(300);

}  // namespace

void ControlDialer::want(uint64_t id, LinkKind kind, bool first, TimePoint now) {
  if (ledger_.gone(id) || reach_.tried(id, kind)) return;
  ControlPeer& peer = processes_[id];
  ControlPeer::Line& line = peer.line(kind);
  if (line.wanted == TimePoint()) line.wanted = now;
  if (!first && !line.reached && now - line.wanted < kGrace) return;
  if (now < line.retry_at) return;
  line.retry_at = now + kRedial;
  auto [address, nonce] = groups_.address_of(id, kind);
  if (kind == LinkKind::kLocal && !groups_.has(id)) address = peer.unix_name;
  reach_.dial(kind, id, address, nonce, now);
}

void ControlDialer::keep_linked(const ControlGroup& group, TimePoint now) {
  const ControlRoster& roster = group.roster;
  for (const uint64_t peer : roster.local_peers())
    want(peer, LinkKind::kLocal, roster.dials_first(peer), now);
  const auto gone = [this](uint64_t id) { return ledger_.gone(id); };
  for (const int host : roster.neighbours())
    for (const uint64_t peer : roster.links_to(host, gone))
      want(peer, LinkKind::kTcp, roster.dials_first(peer), now);
}

}  // namespace ringdist
