#include "engine/group/ending.h"

#include <algorithm>

namespace ringdist {

bool FailureState::fail(const Error& cause) {
  if (failure_) return false;
  failure_ = cause;
  return true;
}

void FailureState::doom(uint64_t number, const Error& cause, bool tell_others, TimePoint now) {
  if (!doom_ || number < doom_->number) doom_ = PendingFailure{number, cause, tell_others, now};
}

std::optional<FailureState::PendingFailure> FailureState::due(const std::optional<Oldest>& oldest,
                                                              Duration grace, TimePoint now) const {
  if (state() != State::kDoomed) return std::nullopt;
  const bool older = oldest && oldest->number < doom_->number;
  if (older && now - std::max(oldest->last_progress, doom_->since) < grace) return std::nullopt;
  return doom_;
}

}  // namespace ringdist
