#include "engine/op/send_edge.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

void SendEdge::sent() {
  check(state_ == State::kOpen || state_ == State::kAsking, "a segment beyond the edge's last");
  ++next_;
  update_state();
}

bool SendEdge::ask() {
  check(state_ == State::kOpen || state_ == State::kAsking, "a grant for nothing");
  if (state_ == State::kAsking) return false;
  state_ = State::kAsking;
  return true;
}

void SendEdge::grant(int64_t until) {
  granted_ = std::max(granted_, until);
  if (state_ == State::kAsking) state_ = State::kOpen;
}

bool SendEdge::complete(int64_t segment) {
  check(segment < next_, "the end of a segment that was not sent");
  if (segment < completed_ || std::ranges::count(ahead_, segment) > 0) return false;
  if (segment != completed_) {
    ahead_.push_back(segment);
    return true;
  }
  ++completed_;
  while (std::erase(ahead_, completed_) > 0) ++completed_;
  update_state();
  return true;
}

bool SendEdge::complete_sends() {
  if (completed_ == next_) return false;
  completed_ = next_;
  ahead_.clear();
  update_state();
  return true;
}

void SendEdge::update_state() {
  if (next_ == segments_) state_ = completed_ == segments_ ? State::kDone : State::kSent;
}

}  // namespace ringdist
