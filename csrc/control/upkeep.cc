#include <algorithm>

#include "control/loop.h"
#include "os/pidfd.h"

namespace ringdist {
namespace {

constexpr LinkKind kKinds[] = {LinkKind::kLocal, LinkKind::kTcp};
constexpr Duration kSuspectAfter = Milliseconds(800);
constexpr Duration kOwnPause = std::chrono::seconds(1);
constexpr Duration kRedial = Milliseconds(50);
// How long the side that should accept waits before it dials itself.
constexpr Duration kGrace = Milliseconds(300);

std::string format_seconds(Duration d) {
  auto tenths = std::chrono::duration_cast<Milliseconds>(d).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Duration ControlLoop::suspect_after() const { return std::min(kSuspectAfter, peer_timeout_ / 2); }

void ControlLoop::upkeep() {
  for (const Request& request : requests_)
    if (request.is_proof) want(request.id, LinkKind::kLocal, true);
  forget_left();
  for (auto& [nonce, group] : groups_) {
    keep_linked(group);
    if (!group.left()) watch_hosts(group);
  }
  judge_peers();
  settle_needs();
}

// When this thread did not run (the process was stopped, the machine suspended) it is not the
// others who were silent.
void ControlLoop::forgive_own_pause(TimePoint now, Duration planned) {
  Duration late = now - now_ - planned;
  if (late <= std::min(kOwnPause, peer_timeout_ / 2)) return;
  auto shift = [&](TimePoint& time) {
    if (time != TimePoint()) time = std::min(time + late, now);
  };
  for (auto& [id, peer] : peers_)
    for (auto& line : peer.lines) shift(line.heard);
  for (auto& [nonce, group] : groups_) shift(group.judged_since);
}

void ControlLoop::keep_linked(Group& group) {
  auto is_gone = [this](uint64_t id) { return gone(id); };
  for (uint64_t peer : group.roster.local_peers())
    if (!gone(peer)) want(peer, LinkKind::kLocal, group.roster.dials_first(peer));
  for (int host : group.roster.neighbours())
    for (uint64_t peer : group.roster.links_to(host, is_gone))
      want(peer, LinkKind::kTcp, group.roster.dials_first(peer));
}

// Dials a peer that should be connected and is not, when it is time to.
void ControlLoop::want(uint64_t id, LinkKind kind, bool dials_first) {
  if (gone(id) || sockets_.find(id, kind)) return;
  ControlPeer& peer = peers_[id];
  ControlPeer::Line& line = peer.line(kind);
  if (line.wanted == TimePoint()) line.wanted = now_;
  if (!dials_first && !line.reached && now_ - line.wanted < kGrace) return;
  if (now_ < line.retry_at) return;
  line.retry_at = now_ + kRedial;
  std::string address = kind == LinkKind::kLocal ? peer.unix_name : "";
  uint64_t nonce = 0;
  for (auto& [group_nonce, group] : groups_) {
    if (!group.roster.has(id)) continue;
    const ControlMember& member = group.roster.member(id);
    address = kind == LinkKind::kLocal ? member.unix_name : member.tcp_address;
    // Of a group that was left the peer may never know, and keep us waiting.
    if (kind == LinkKind::kTcp && (nonce == 0 || !group.left())) nonce = group_nonce;
  }
  sockets_.dial(kind, id, address, nonce, now_);
}

void ControlLoop::watch_hosts(Group& group) {
  bool representative = group.roster.representative([this](uint64_t id) { return gone(id); });
  if (representative != group.representative) {
    group.representative = representative;
    group.judged_since = now_;  // a host may not be blamed for silence before we listened
  }
  if (!representative || !group.connected) return;
  for (int host : group.roster.neighbours()) judge_host(group, host);
}

// A host is silent when nothing comes from any of its processes; before that, each is tried.
void ControlLoop::judge_host(Group& group, int host) {
  std::vector<uint64_t> alive;
  TimePoint heard = group.judged_since;
  for (uint64_t id : group.roster.processes_of(host)) {
    if (gone(id) || exiting(id)) continue;
    alive.push_back(id);
    auto peer = peers_.find(id);
    if (peer == peers_.end()) continue;
    for (LinkKind kind : kKinds) heard = std::max(heard, peer->second.line(kind).heard);
  }
  Duration silence = now_ - heard;
  if (alive.empty() || silence < suspect_after()) return;
  want(alive[group.scan[host]++ % alive.size()], LinkKind::kTcp, true);
  if (silence <= peer_timeout_) return;
  std::string cause = "host " + group.roster.member(alive[0]).host_name +
                      " fell silent: nothing was heard from its processes for " +
                      format_seconds(silence) + " (";
  for (uint64_t id : alive) learn_lost(id, cause + name_of(id) + " among them)");
}

void ControlLoop::judge_peers() {
  std::vector<uint64_t> ids;  // judging changes peers_
  for (auto& [id, peer] : peers_) ids.push_back(id);
  for (uint64_t id : ids) {
    for (LinkKind kind : kKinds) {
      auto found = peers_.find(id);
      if (found == peers_.end() || judge_line(id, found->second, kind)) break;
    }
  }
}

// True if the peer was given up.
bool ControlLoop::judge_line(uint64_t id, ControlPeer& peer, LinkKind kind) {
  if (exiting(id)) {  // its heartbeats have ended
    if (now_ - peer.exits_since <= peer_timeout_) return false;
    learn_left(id, nullptr);
    return true;
  }
  ControlPeer::Line& line = peer.line(kind);
  if (!line.reached || !relied_on(id)) return false;
  bool local = kind == LinkKind::kLocal;
  if (local && now_ - line.heard > peer_timeout_) {
    learn_lost(id, "its process (" + name_of(id) + ") has been silent for " +
                       format_seconds(now_ - line.heard) + " (stopped, frozen or unreachable)");
    return true;
  }
  const ControlConnection* link = sockets_.find(id, kind);
  if (link && link->reached()) return false;
  // A hang-up is not death where the kernel can be asked: somebody may have closed the connection.
  bool kernel_knows = local && peer.pidfd;
  if (line.deserted() && !kernel_knows) {
    learn_lost(id, "its process (" + name_of(id) +
                       ") died: its connection ended and nothing listens on its control socket");
    return true;
  }
  want(id, kind, true);
  return false;
}

// Of this process somebody would miss it, so that its end must be noticed.
bool ControlLoop::relied_on(uint64_t id) const {
  auto peer = peers_.find(id);
  if (peer != peers_.end() && peer->second.proven) return true;
  return std::any_of(groups_.begin(), groups_.end(), [id](const auto& entry) {
    return !entry.second.left() && entry.second.roster.has(id);
  });
}

// Or it has yet to hear that a group was left.
bool ControlLoop::needed(uint64_t id) const {
  return relied_on(id) || std::any_of(groups_.begin(), groups_.end(), [id](const auto& entry) {
           return entry.second.roster.has(id);
         });
}

// Tells peers which connections we need, and closes those that nobody does. The lower id closes;
// until then either side may change its mind.
void ControlLoop::settle_needs() {
  sockets_.for_each([this](ControlConnection& c) {
    if (!c.open()) return;
    bool need = needed(c.peer);
    if (need) c.was_needed = true;
    // One that a peer opened is its to give up: our group may not exist yet.
    if (!c.was_needed) need = c.peer_needs;
    if (need != c.needed) {
      c.needed = need;
      std::byte value{need};
      sockets_.send(c, make_frame(FrameType::kNeed, ConstBytes{&value, 1}));
    }
    if (!c.needed && !c.peer_needs && id_ < c.peer) sockets_.close(c);
  });
  std::vector<uint64_t> idle;
  for (auto& [id, peer] : peers_) {
    bool linked = sockets_.find(id, LinkKind::kLocal) || sockets_.find(id, LinkKind::kTcp);
    if (!linked && !needed(id)) idle.push_back(id);
  }
  for (uint64_t id : idle) forget(id);
}

// Something waits that a regular tick would find too late.
bool ControlLoop::unsettled() {
  if (!requests_.empty()) return true;
  return std::any_of(peers_.begin(), peers_.end(), [this](auto& entry) {
    return std::any_of(std::begin(kKinds), std::end(kKinds), [&](LinkKind kind) {
      const ControlConnection* link = sockets_.find(entry.first, kind);
      return entry.second.line(kind).reached && !(link && link->reached());
    });
  });
}

}  // namespace ringdist
