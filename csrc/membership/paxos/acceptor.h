// A member's memory of the ballots of one generation: Paxos' acceptor (Lamport, "Paxos Made
// Simple", 2001). It is not kept on disk: a process that ends never comes back as the same member.
#pragma once

#include <optional>

#include "membership/paxos/decision.h"

namespace ringdist {

struct Accepted {
  Ballot ballot;
  Decision value;
};

class Acceptor {
 public:
  const Ballot& promised() const { return promised_; }
  const std::optional<Accepted>& accepted() const { return accepted_; }

  // From then on, nothing of an earlier ballot is accepted.
  bool promise(const Ballot& ballot) {
    if (ballot < promised_) return false;
    promised_ = ballot;
    return true;
  }
  bool accept(const Ballot& ballot, const Decision& value) {
    if (!promise(ballot)) return false;
    accepted_ = {ballot, value};
    return true;
  }
  // That `value` was decided as of `ballot`: who says so has decided it there, or accepts nothing
  // up to it any more. What was accepted since may have been decided by those who know nothing of
  // it, if all who did have died: then it came to nothing.
  bool may_learn(const Ballot& ballot, const Decision& value) const {
    return !accepted_ || accepted_->ballot <= ballot || accepted_->value == value;
  }

 private:
  Ballot promised_;
  std::optional<Accepted> accepted_;
};

}  // namespace ringdist
