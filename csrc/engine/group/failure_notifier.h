// What follows the failure of a rank's group: the others are told, then its owner is. What is
// thrown half-way stays due; the failure itself needs no memory.
//
// Every call comes with the lane's driver token held.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "base/error.h"

namespace ringdist {

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
