#include "control/failure_detector.h"

#include <algorithm>
#include <vector>

#include "control/control_report.h"

namespace ringdist {
namespace {

constexpr Duration kSuspectAfter = Milliseconds(800);  // at most half of the peer timeout
// Shorter pauses of this thread are not discounted.
constexpr Duration kOwnPause = std::chrono::seconds(1);
constexpr size_t kScan = 8;  // processes of a silent host that are dialed per tick

// Formats with one decimal, rounded down.
std::string format_seconds(Duration d) {
  const auto tenths = std::chrono::duration_cast<Milliseconds>(d).count() / 100;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " s";
}

}  // namespace

Duration FailureDetector::suspect_after() const {
  return std::min(kSuspectAfter, peer_timeout_ / 2);
}

// Shorter delays of the loop are usual, and do not make a live process look silent for the peer
// timeout.
void FailureDetector::discount_own_pause(Duration late, TimePoint now) {
  if (late <= std::min(kOwnPause, peer_timeout_ / 2)) return;
  processes_.discount_pause(late, now);
  groups_.discount_pause(late, now);
}

void FailureDetector::check_hosts(ControlGroup& group, TimePoint now) {
  const bool representative =
      group.roster.representative([this](uint64_t id) { return history_.departed(id); });
  if (representative != group.representative) {
    group.representative = representative;
    group.watched_since = now;  // a host is not blamed for silence before this process listened
  }
  if (!representative || !group.connected) return;
  for (const int host : group.roster.neighbours()) check_host(group, host, now);
}

// A host counts as silent when nothing comes from any of its processes; before that each is dialed.
// The process that was linked to this one may have ended, and the others were not silent as long as
// there was no link to them.
void FailureDetector::check_host(ControlGroup& group, int host, TimePoint now) {
  std::vector<uint64_t> alive;
  TimePoint& heard = group.heard[host];
  heard = std::max(heard, group.watched_since.value_or(TimePoint()));
  for (const uint64_t id : group.roster.processes_of(host)) {
    if (!history_.departed(id) && !processes_.exiting(id)) alive.push_back(id);
    const ControlPeer* peer = processes_.find(id);
    if (peer == nullptr) continue;
    for (const auto& link : peer->lines) heard = std::max(heard, link.last_heard().value_or(heard));
  }
  const Duration silence = now - heard;
  if (alive.empty() || silence < suspect_after()) return;
  for (size_t i = 0; i < std::min(kScan, alive.size()); ++i)
    dialer_.want(alive[group.scan[host]++ % alive.size()], LinkKind::kTcp, true, now);
  if (silence <= peer_timeout_) return;
  const std::string cause = "host " + group.roster.member(alive[0]).host_name +
                            " fell silent: nothing was heard from its processes for " +
                            format_seconds(silence) + " (";
  for (const uint64_t id : alive) delegate_.learn_lost(id, cause + name(id) + " among them)");
}

void FailureDetector::check_processes(TimePoint now) {
  for (const uint64_t id : processes_.ids()) {  // a copy, since checks change the table
    for (const LinkKind kind : kLinkKinds) {
      ControlPeer* peer = processes_.find(id);
      if (peer == nullptr || check_link(id, *peer, kind, now)) break;
    }
  }
}

bool FailureDetector::has_listened(uint64_t id) const {
  return std::ranges::any_of(groups_.all(), [&](const auto& one) {
    return !one.second.left() && formation_barrier_.has(one.first, id);
  });
}

bool FailureDetector::host_leaves(uint64_t id) const {
  return std::ranges::any_of(groups_.all(), [&](const auto& one) {
    const LinkTopology& roster = one.second.roster;
    if (one.second.left() || !roster.has(id)) return false;
    return std::ranges::any_of(roster.processes_of(roster.member(id).host),
                               [&](uint64_t other) { return history_.left(other); });
  });
}

bool FailureDetector::check_link(uint64_t id, ControlPeer& peer, LinkKind kind, TimePoint now) {
  const PeerLink& link = peer.link(kind);
  if (peer.exiting()) {  // it sends no more heartbeats
    // It keeps the connection until its end. For a local process the kernel's report is as good,
    // and comes a moment later, when the parent of that process is notified.
    const bool hung_up = link.joined() && !connections_view_.reached(id, kind) && !peer.pidfd;
    if (!hung_up && peer.exiting_for(now) <= peer_timeout_) return false;
    delegate_.learn_left(id);
    return true;
  }
  const bool local = kind == LinkKind::kLocal;
  // A host may end with all its processes, and most of them had no link to this one.
  const bool never_joined = !link.joined() && !local && link.deserted() && has_listened(id);
  if (!(link.joined() || never_joined) || !demand_.is_monitored(id)) return false;
  if (local && link.silence(now) > peer_timeout_) {
    delegate_.learn_lost(id, "its process (" + name(id) + ") has been silent for " +
                                 format_seconds(link.silence(now)) +
                                 " (stopped, frozen or unreachable)");
    return true;
  }
  if (connections_view_.reached(id, kind)) return false;
  // Where the kernel can be queried, the end of a connection is no death: the connection may have
  // been closed.
  const bool kernel_knows = local && peer.pidfd;
  if (link.deserted() && !kernel_knows) {
    // The whole host has left, and no process remained to report that of this one.
    if (never_joined && host_leaves(id))
      delegate_.learn_left(id);
    else
      delegate_.learn_lost(id, "its process (" + name(id) +
                                   ") died: " + (never_joined ? "" : "its connection ended and ") +
                                   "nothing listens on its control socket");
    return true;
  }
  dialer_.want(id, kind, true, now);
  return false;
}

std::string FailureDetector::name(uint64_t id) const { return name_of(id, groups_, processes_); }

}  // namespace ringdist
