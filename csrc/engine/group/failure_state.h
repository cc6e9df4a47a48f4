// Failure state of a group, and the announcement of a failure. Later causes are ignored. The states
// are:
//
//   `kActive`: ops start and end.
//   `kDraining`: the group will fail once the ops before a certain one have ended or stall.
//
//   `kFailed`: every op has ended or will end with the cause.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "base/error.h"

namespace ringdist {

// Holds the cause of a failure, and a failure that is pending while older ops drain.
class FailureState {
 public:
  enum class State : uint8_t { kActive, kDraining, kFailed };

  // A failure that waits for older ops.
  struct PendingFailure {
    uint64_t number = 0;  // first op that cannot succeed
    Error cause;
    bool tell_others = false;  // the other ranks must be notified
    TimePoint since;           // when it became pending
  };
  // Progress of the oldest op in flight.
  struct Oldest {
    uint64_t number = 0;
    TimePoint last_progress;
  };

  State state() const {
    return failure_ ? State::kFailed : pending_failure_ ? State::kDraining : State::kActive;
  }
  bool failed() const { return state() == State::kFailed; }
  const Error& cause() const { return failure_; }  // success unless kFailed

  // Sets the cause. Returns false, without effect, if the group has already failed.
  bool fail(const Error& cause);
  // Makes a failure pending for ops from `number` on. Of several, the one with the lowest number is
  // kept.
  void fail_after(uint64_t number, const Error& cause, bool tell_others, TimePoint now);
  // Returns the pending failure if it is due: no op before it is in flight, or the oldest has not
  // progressed for `grace`.
  std::optional<PendingFailure> due(const std::optional<Oldest>& oldest, Duration grace,
                                    TimePoint now) const;

 private:
  Error failure_;
  std::optional<PendingFailure> pending_failure_;
};

// Announces the failure of a group: first to the other ranks, then to the owner of the group. If a
// step throws, it stays pending and is retried; setting the failure itself needs no memory.
//
// Threads: the caller holds the lane's progress lock.
class FailureNotifier {
 public:
  using OnFailed = std::function<void(const Error&)>;

  // `owner` is null or is called with the cause once, and again if it throws.
  explicit FailureNotifier(OnFailed owner) : owner_(std::move(owner)) {}

  // Records that the group has failed. `op` is the first op that the other ranks cannot finish, or
  // nothing if they already have the cause or cannot be reached.
  void begin(std::optional<uint64_t> op) {
    op_ = op;
    owner_due_ = static_cast<bool>(owner_);
  }
  // Records that the other ranks can be notified from here on.
  void tell(uint64_t op) { op_ = op; }
  // Returns true if nothing is pending.
  bool done() const { return !op_ && !owner_due_; }

  // Does what is pending. `word` makes the Notice about an op; `delegate` is a GroupDelegate.
  // Throws nothing.
  template <typename Host, typename Word>
  void notify_pending(Host& delegate, const Error& cause, const Word& word) {
    try {
      if (op_) delegate.flood(word(*op_));
      op_.reset();
      if (owner_due_) owner_(cause);
      owner_due_ = false;
    } catch (...) {  // retried later, so that ops can end meanwhile
    }
  }

 private:
  const OnFailed owner_;
  std::optional<uint64_t> op_;
  bool owner_due_ = false;
};

}  // namespace ringdist
