#include "control/control_peers.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/check.h"
#include "os/pidfd.h"

namespace ringdist {

namespace {

constexpr Duration kRedial = Milliseconds(50);  // minimum time between dials
// The side that should accept waits so long before it dials itself.
constexpr Duration kGrace = Milliseconds(300);

}  // namespace

void PeerLink::want(TimePoint now) {
  if (state_ != State::kIdle) return;
  state_ = State::kMissing;
  missing_since_ = now;
}

bool PeerLink::may_dial(bool first, TimePoint now) const {
  check(state_ != State::kIdle, "the link was not requested");
  const bool their_turn = !first && state_ == State::kMissing && now - missing_since_ < kGrace;
  return !their_turn && now >= retry_at_;
}

void PeerLink::dialed(TimePoint now) {
  check(state_ != State::kIdle, "the link was not requested");
  retry_at_ = now + kRedial;
}

void PeerLink::connected(TimePoint now) {
  *this = PeerLink();
  state_ = State::kJoined;
  heard_ = now;
}

void PeerLink::failed(int errno_value, const std::string& reason) {
  if (errno_value == ECONNREFUSED) ++refusals_;
  failure_ = reason;
  if (errno_value == EACCES) rejection_ = reason;
}

void PeerLink::ended(bool given_up, int errno_value, const std::string& reason, TimePoint now) {
  if (given_up) state_ = State::kIdle;
  retry_at_ = now;
  refusals_ = 0;
  failed(errno_value, reason);
}

void PeerLink::forget_failures() {
  if (!joined()) *this = PeerLink();
}

void PeerLink::forget_refusals() {
  refusals_ = 0;
  rejection_.clear();
}

void PeerLink::discount_pause(Duration pause, TimePoint now) {
  if (heard_) heard_ = std::min(*heard_ + pause, now);
}

Duration PeerLink::silence(TimePoint now) const {
  check(joined() && heard_, "the link is not connected");
  return now - *heard_;
}

Duration ControlPeer::exiting_for(TimePoint now) const {
  check(exiting(), "the process has not announced its end");
  return now - *exits_since_;
}

ControlPeer* ControlPeerTable::find(uint64_t id) {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

const ControlPeer* ControlPeerTable::find(uint64_t id) const {
  const auto found = peers_.find(id);
  return found == peers_.end() ? nullptr : &found->second;
}

bool ControlPeerTable::exiting(uint64_t id) const {
  const ControlPeer* peer = find(id);
  return peer != nullptr && peer->exiting();
}

std::vector<uint64_t> ControlPeerTable::ids() const {
  std::vector<uint64_t> out;
  for (const auto& [id, peer] : peers_) out.push_back(id);
  return out;
}

void ControlPeerTable::watch_exit(uint64_t id, int pid) {
  ControlPeer& peer = peers_[id];
  if (peer.pidfd && peer.pid == pid) return;
  unwatch(id, peer);  // the former connection was of a process that had only named its id
  peer.pid = pid;
  auto pidfd = open_pidfd(pid);
  // Not visible from here, or gone already: the failure detector finds its end by refused dials.
  if (!pidfd.ok()) return;
  const uint64_t key = next_exit_key_++;
  exits_[key] = id;  // first: an event without an owner would come again and again
  if (epoll_.add(pidfd.value().get(), EPOLLIN, key))
    exits_.erase(key);
  else
    peer.pidfd = std::move(pidfd.value());
}

std::optional<uint64_t> ControlPeerTable::ended(uint64_t key) const {
  const auto found = exits_.find(key);
  return found == exits_.end() ? std::nullopt : std::optional(found->second);
}

void ControlPeerTable::unwatch(uint64_t id, ControlPeer& peer) {
  if (peer.pidfd) epoll_.remove(peer.pidfd.get());
  peer.pidfd.reset();
  std::erase_if(exits_, [id](const auto& entry) { return entry.second == id; });
}

void ControlPeerTable::forget(uint64_t id) {
  const auto found = peers_.find(id);
  if (found == peers_.end()) return;
  unwatch(id, found->second);
  peers_.erase(found);
}

void ControlPeerTable::forget_failures() {
  for (auto& [id, peer] : peers_)
    for (auto& link : peer.lines) link.forget_failures();
}

void ControlPeerTable::discount_pause(Duration pause, TimePoint now) {
  for (auto& [id, peer] : peers_)
    for (auto& link : peer.lines) link.discount_pause(pause, now);
}

}  // namespace ringdist
