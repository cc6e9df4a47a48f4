#include "engine/op/edges.h"

#include <algorithm>

#include "base/check.h"

namespace ringdist {

void RecvEdge::reserve(int64_t bytes) {
  budget_.get().change(bytes - reserved_);
  reserved_ = bytes;
}

std::optional<TimePoint> RecvEdge::answers_grant(int64_t segment) const {
  if (granted_ == 0 || segment != first_allowed_) return std::nullopt;
  return granted_at_;
}

void RecvEdge::consume(int64_t bytes_per_segment) {
  check(state_ != State::kDone, "a segment beyond the edge's last");
  kept_.erase(consumed_++);
  reserve(std::max<int64_t>(0, granted_ - consumed_) * bytes_per_segment);
  if (consumed_ == segments_) state_ = State::kDone;
}

void RecvEdge::ask() {
  if (state_ != State::kDone) state_ = State::kAwaited;
}

// While more than half a window is granted and unused, the sender does not need another grant yet.
// Grants are therefore sent at most twice per window.
bool RecvEdge::wants_grant(int64_t window) const {
  if (!lacks_any() || granted_ >= segments_) return false;
  return state_ == State::kAwaited || granted_ - consumed_ <= window / 2;
}

// All numbers count segments from the edge's first. [0, consumed) are consumed, [0, granted) are
// permitted, and here() segments have arrived.
//
// A grant until `target` reserves memory for target - consumed segments. The target is a full
// window if the budget has room for it. Otherwise it is one segment more than has arrived; the
// oldest op of a group gets that one in any case, so that it can always progress. If the target
// permits nothing new, no grant is made.
std::optional<int64_t> RecvEdge::grant(const GrantTerms& terms) {
  int64_t target = std::min(segments_, consumed_ + terms.window);
  const auto affordable = [&] {
    return budget_.get().fits((target - consumed_) * terms.bytes - reserved_);
  };
  if (!affordable()) {
    target = here() + 1;
    if (!affordable() && !terms.oldest) {
      state_ = terms.unsolicited ? State::kQuiet : State::kAwaited;
      return std::nullopt;
    }
  }
  if (target <= std::max(granted_, here())) return std::nullopt;
  if (granted_ == 0 || here() > first_allowed_) {
    first_allowed_ = std::max(granted_, here());
    granted_at_ = terms.now;
  }
  granted_ = target;
  state_ = State::kGranted;
  reserve((target - consumed_) * terms.bytes);
  return target;
}

void RecvEdge::stop() {
  kept_.clear();
  reserve(0);
}

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
