#include "control/control_report.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include "base/describe.h"
#include "os/host.h"

namespace ringdist {
namespace {

// Returns "1.23 s ago", or "never" if there is no time.
std::string format_age(TimePoint now, std::optional<TimePoint> then) {
  if (!then) return "never";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f s ago", seconds(now - *then));
  return text.data();
}

// Returns the line of one peer.
std::string report_peer(uint64_t id, const ControlPeer& peer, const std::string& name,
                        const ConnectionView& connections, Duration suspect_after, TimePoint now) {
  std::string out = "  " + format_id(id) + " " + name + ":";
  for (const LinkKind kind : kLinkKinds) {
    const PeerLink& link = peer.link(kind);
    if (!connections.is_connecting_or_open(id, kind) && !link.joined() && link.failure().empty())
      continue;
    out += kind == LinkKind::kLocal ? " local " : " tcp ";
    out += connections.open(id, kind)      ? "open"
           : connections.reached(id, kind) ? "held"
                                           : "not connected";
    out += ", heard " + format_age(now, link.last_heard());
    if (peer.exiting())
      out += " exits";
    else if (link.joined() && link.silence(now) > suspect_after)
      out += " SUSPECT";
    if (!link.failure().empty()) out += " (" + link.failure() + ")";
    out += ';';
  }
  return out + (peer.pidfd ? " exit watched\n" : "\n");
}

}  // namespace

std::string name_of(uint64_t id, const ControlGroupTable& groups,
                    const ControlPeerTable& processes) {
  if (const ControlMember* member = groups.member(id))
    return describe_process(member->pid, member->host_name);
  const ControlPeer* peer = processes.find(id);
  if (peer == nullptr || peer->pid <= 0) return "context " + format_id(id);
  return describe_process(peer->pid, host_name());
}

std::string report_links(const ControlGroupTable& groups, const ControlPeerTable& processes,
                         const ConnectionView& connections, Duration suspect_after, TimePoint now) {
  std::string out;
  for (const auto& [nonce, group] : groups.all())
    out += " group " + format_id(nonce) + ": " + std::to_string(group.roster.processes().size()) +
           " processes on " + std::to_string(group.roster.host_count()) + " hosts, this is host " +
           std::to_string(group.roster.my_host()) + (group.connected ? "" : ", connecting") +
           (group.representative ? ", a representative" : "") + "\n";
  for (const auto& [id, peer] : processes.all())
    out += report_peer(id, peer, name_of(id, groups, processes), connections, suspect_after, now);
  return out;
}

// The thread owns a reference to busy_ and clears it at its end.
void StderrReport::write(std::string text) {
  if (busy_->exchange(true)) return;
  try {
    std::thread([text = std::move(text), busy = busy_] {
      for (size_t done = 0; done < text.size();) {
        const ssize_t n = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (n <= 0) break;
        done += static_cast<size_t>(n);
      }
      *busy = false;
    }).detach();
  } catch (const std::exception&) {  // no thread or no memory available
    *busy_ = false;
  }
}

}  // namespace ringdist
