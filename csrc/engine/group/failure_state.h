// How a group ends. The first cause stays.
//
//   kOpen    ops begin and end
//   kDoomed  it will fail when what is older than some op has ended, which has all it needs, or
//            when that no longer moves
//   kFailed  every op has ended or will, with the cause
#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

class FailureState {
 public:
  enum class State : uint8_t { kActive, kDraining, kFailed };

  struct PendingFailure {
    uint64_t number = 0;  // the first op that cannot end well
    Error cause;
    bool tell_others = false;
    TimePoint since;
  };
  // The oldest op in flight.
  struct Oldest {
    uint64_t number = 0;
    TimePoint last_progress;
  };

  State state() const {
    return failure_ ? State::kFailed : pending_failure_ ? State::kDraining : State::kActive;
  }
  bool failed() const { return state() == State::kFailed; }
  const Error& cause() const { return failure_; }  // success until it has failed

  // False if it had failed.
  bool fail(const Error& cause);
  // Of several, the one with the lowest number holds.
  void fail_after(uint64_t number, const Error& cause, bool tell_others, TimePoint now);
  // The doom whose time has come. `grace`: how long what is older may stand still.
  std::optional<PendingFailure> due(const std::optional<Oldest>& oldest, Duration grace,
                                    TimePoint now) const;

 private:
  Error failure_;
  std::optional<PendingFailure> pending_failure_;
};

}  // namespace ringdist
