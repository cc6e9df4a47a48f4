// How a group ends. The first cause stays.
//
//   kOpen    ops begin and end
//   kDoomed  it will fail when what is older than some op has ended, which has all it needs, or
//            when that no longer moves
//   kFailed  every op has ended or will, with the cause
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

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

// What follows the failure of a rank's group: the others are told, then its owner is. What is
// thrown half-way stays due; the failure itself needs no memory.
//
// Every call comes with the lane's driver token held.
class FailureNotifier {
 public:
  using OnFailed = std::function<void(const Error&)>;

  // `owner`: null, or told the cause once; again if it throws.
  explicit FailureNotifier(OnFailed owner) : owner_(std::move(owner)) {}

  // The group has failed. `op`: the first that the others cannot finish; none if they know, or
  // cannot be told.
  void begin(std::optional<uint64_t> op) {
    op_ = op;
    owner_due_ = static_cast<bool>(owner_);
  }
  // Now they can.
  void tell(uint64_t op) { op_ = op; }
  bool done() const { return !op_ && !owner_due_; }

  // Does what is still due. `word` makes, of an op, the Notice of it; `delegate` is a
  // GroupDelegate.
  template <typename Host, typename Word>
  void notify_pending(Host& delegate, const Error& cause, const Word& word) {
    try {
      if (op_) delegate.flood(word(*op_));
      op_.reset();
      if (owner_due_) owner_(cause);
      owner_due_ = false;
    } catch (...) {  // for another time: ops that end need not wait for it
    }
  }

 private:
  const OnFailed owner_;
  std::optional<uint64_t> op_;
  bool owner_due_ = false;
};

}  // namespace ringdist
