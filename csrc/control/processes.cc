#include "control/processes.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "os/pidfd.h"

namespace ringdist {

void ControlPeer::Line::failed(int errno_value, const std::string& reason) {
  failure = reason;
  if (errno_value == ECONNREFUSED) ++refusals;
  if (errno_value == EACCES) rejection = reason;
}

ControlPeer* ControlProcesses::find(uint64_t id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

const ControlPeer* ControlProcesses::find(uint64_t id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

bool ControlProcesses::exiting(uint64_t id) const {
  const ControlPeer* peer = find(id);
  return peer != nullptr && peer->exiting();
}

std::vector<uint64_t> ControlProcesses::ids() const {
  std::vector<uint64_t> out;
  for (const auto& [id, peer] : peers_) out.push_back(id);
  return out;
}

void ControlProcesses::watch_exit(uint64_t id, int pid) {
  ControlPeer& peer = peers_[id];
  peer.pid = pid;
  if (peer.pidfd) return;
  auto pidfd = open_pidfd(pid);
  if (!pidfd.ok()) return;  // not visible from here: heartbeats must do
  const uint64_t key = next_exit_key_++;
  exits_[key] = id;  // first: an event that is nobody's would come again and again
  if (epoll_.add(pidfd.value().get(), EPOLLIN, key))
    exits_.erase(key);
  else
    peer.pidfd = std::move(pidfd.value());
}

std::optional<uint64_t> ControlProcesses::ended(uint64_t key) const {
  const auto found = exits_.find(key);
  return found == exits_.end() ? std::nullopt : std::optional(found->second);
}

void ControlProcesses::forget(uint64_t id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  if (found->second.pidfd) epoll_.remove(found->second.pidfd.get());
  std::erase_if(exits_, [id](const auto& entry) { return entry.second == id; });
  peers_.erase(found);
}

void ControlProcesses::forget_failures() {
  for (auto& [id, peer] : peers_)
    for (auto& line : peer.lines) line.forget_failures();
}

void ControlProcesses::forgive(Duration pause, TimePoint now) {
  for (auto& [id, peer] : peers_)
    for (auto& line : peer.lines) forgive_pause(line.heard, pause, now);
}

void forgive_pause(TimePoint& time, Duration pause, TimePoint now) {
  if (time != TimePoint()) time = std::min(time + pause, now);
}

}  // namespace ringdist
