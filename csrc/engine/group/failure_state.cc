#include "engine/group/failure_state.h"

#include <algorithm>

namespace ringdist {

bool FailureState::fail(const Error& cause) {
  if (failure_) return false;
  failure_ = cause;
  return true;
}

void FailureState::fail_after(uint64_t number, const Error& cause, bool tell_others,
                              TimePoint now) {
  if (!pending_failure_ || number < pending_failure_->number)
    pending_failure_ = PendingFailure{number, cause, tell_others, now};
}

std::optional<FailureState::PendingFailure> FailureState::due(const std::optional<Oldest>& oldest,
                                                              Duration grace, TimePoint now) const {
  if (state() != State::kDraining) return std::nullopt;
  const bool older = oldest && oldest->number < pending_failure_->number;
  if (older && now - std::max(oldest->last_progress, pending_failure_->since) < grace)
    return std::nullopt;
  return pending_failure_;
}

}  // namespace ringdist
