#include <unistd.h>

#include <array>
#include <cstdio>
#include <exception>

#include "control/loop.h"
#include "os/host.h"

namespace ringdist {
namespace {

std::string format_age(TimePoint now, TimePoint then) {
  if (then == TimePoint()) return "never";
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.2f s ago", seconds(now - then));
  return text.data();
}

}  // namespace

const ControlMember* ControlLoop::find_member(uint64_t id) const {
  for (const auto& [nonce, group] : groups_)
    if (group.roster.has(id)) return &group.roster.member(id);
  return nullptr;
}

// "pid 123 on host X"
std::string ControlLoop::name_of(uint64_t id) const {
  if (const ControlMember* member = find_member(id))
    return describe_process(member->pid, member->host_name);
  auto peer = peers_.find(id);
  if (peer == peers_.end() || peer->second.pid <= 0) return "context " + format_id(id);
  return describe_process(peer->second.pid, host_name());
}

std::string ControlLoop::report() {
  std::string out = events_.dump();
  if (!out.empty() && out.back() != '\n') out += '\n';
  out += "control plane of context " + format_id(id_) + ", pid " + std::to_string(getpid()) + ", " +
         unix_name() + ", " + tcp_address() + "\n";
  for (const auto& [nonce, group] : groups_) {
    out += " group " + format_id(nonce) + ": " + std::to_string(group.roster.processes().size()) +
           " processes on " + std::to_string(group.roster.host_count()) + " hosts, this is host " +
           std::to_string(group.roster.my_host()) + (group.connected ? "" : ", connecting") +
           (group.representative ? ", a representative" : "") + "\n";
  }
  for (const auto& [id, peer] : peers_) out += report_peer(id, peer);
  return out + ledger_.describe();
}

std::string ControlLoop::report_peer(uint64_t id, const ControlPeer& peer) {
  std::string out = "  " + format_id(id) + " " + name_of(id) + ":";
  for (LinkKind kind : {LinkKind::kLocal, LinkKind::kTcp}) {
    const ControlPeer::Line& line = peer.line(kind);
    const ControlConnection* link = sockets_.find(id, kind);
    if (!link && !line.reached && line.failure.empty()) continue;
    out += kind == LinkKind::kLocal ? " local " : " tcp ";
    out += link && link->open() ? "open" : link && link->reached() ? "held" : "not connected";
    out += ", heard " + format_age(now_, line.heard);
    bool late = line.reached && now_ - line.heard > suspect_after();
    if (exiting(id))
      out += " exits";
    else if (late)
      out += " SUSPECT";
    if (!line.failure.empty()) out += " (" + line.failure + ")";
    out += ";";
  }
  return out + (peer.pidfd ? " exit watched\n" : "\n");
}

// From a thread of its own: who should read stderr may be stuck, too, and this one has to stay
// heard of. Who asks again meanwhile gets the report that is on its way.
void ControlLoop::report_to_stderr() {
  if (reporting_->exchange(true)) return;
  try {
    std::string text = "[ringdist " + std::to_string(getpid()) + "] asked by SIGUSR1:\n" + report();
    std::thread([text = std::move(text), reporting = reporting_] {
      for (size_t done = 0; done < text.size();) {
        ssize_t n = write(STDERR_FILENO, text.data() + done, text.size() - done);
        if (n <= 0) break;
        done += static_cast<size_t>(n);
      }
      *reporting = false;
    }).detach();
  } catch (const std::exception&) {  // no thread is to be had, or no memory
    *reporting_ = false;
  }
}

}  // namespace ringdist
