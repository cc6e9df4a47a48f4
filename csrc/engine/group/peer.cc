#include "engine/group/peer.h"

namespace ringdist {

std::optional<uint64_t> Peer::last_op() const {
  return presence_ == State::kExiting ? std::nullopt : last_op_;
}

void Peer::mark_left(uint64_t last_op, TimePoint now) {
  last_op_ = last_op;
  departed_at_ = now;
  if (presence_ == State::kHere) presence_ = State::kLeft;
}

void Peer::mark_exiting(uint64_t last_op, TimePoint now) {
  last_op_ = last_op;
  departed_at_ = now;
  if (presence_ == State::kHere) presence_ = State::kExiting;
}

bool Peer::mark_exited(TimePoint now) {
  if (departed()) return false;
  presence_ = State::kExited;
  last_op_ = last_op_.value_or(0);
  departed_at_ = now;
  return true;
}

bool Peer::mark_lost(const Error& cause, TimePoint now) {
  if (presence_ == State::kExiting) return end(now);
  if (departed()) return false;
  presence_ = State::kLost;
  loss_ = cause;
  departed_at_ = now;
  return true;
}

void Peer::break_connection(const Error& cause, TimePoint now) {
  if (broken()) return;
  broken_since_ = now;
  breakage_ = cause;
}

}  // namespace ringdist
