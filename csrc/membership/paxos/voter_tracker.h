// Tracks the state of the other voters of a decision: dead, given up, slow to reply, or unable to
// receive this process' messages. Plain state without I/O, owned by PaxosInstance. The time is an
// argument. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "membership/paxos/decision.h"
#include "membership/paxos/quorum_rule.h"

namespace ringdist {

// Timeouts of the consensus on a group's next generation.
struct PaxosTimeouts {
  // A voter that has not answered for this time is given up (RINGDIST_PEER_TIMEOUT).
  Duration reply_timeout = std::chrono::seconds(10);
  // A proposer that repeats an answered request for longer than this does not receive the answers.
  Duration grace = Milliseconds(500);
  Duration resend = Milliseconds(100);  // interval at which unanswered messages are repeated
  // The lowest rank proposes at once, each further rank this much later.
  Duration proposer_stagger = Milliseconds(20);
  // Another rank waits this long for the proposer of a ballot that was promised.
  Duration proposal_timeout = Milliseconds(500);
  // The reply timeout of a voter that was given up, since that or since the request. A kernel may
  // have reported its death, and that notice may still be under way.
  Duration loss_report = Milliseconds(250);
};

// State of all voters of one decision, by rank, as one of them sees it.
class VoterTracker {
 public:
  VoterTracker(int size, const PaxosTimeouts& timeouts)
      : timeouts_(timeouts), members_(size), dead_(size) {}

  // Records a death that a kernel has reported. Returns true if it is new.
  bool note_death(int rank) { return dead_.add(rank); }
  const RankSet& dead() const { return dead_; }
  // Returns the dead in the form in which messages carry them, in ascending order.
  std::vector<int32_t> dead_ranks() const;

  // Records that `rank` was given up: its messages are ignored, and only the report of its death is
  // waited for.
  void give_up(int rank, TimePoint now) {
    if (!at(rank).given_up) at(rank).given_up = now;
  }
  // Starts the reply timeout of `rank`, unless it runs already.
  void note_request(int rank, TimePoint now) {
    if (!at(rank).asked) at(rank).asked = now;
  }
  // Records an answer of `rank` to a request of this process. The answer proves that messages get
  // through in both directions, so everything held against that voter is cleared. It stays given up
  // or dead if it was.
  void note_answer(int rank) {
    VoterState cleared;
    cleared.given_up = at(rank).given_up;
    at(rank) = cleared;
  }
  // Stops all reply timeouts.
  void drop_questions() {
    for (VoterState& one : members_) one.asked.reset();
  }
  // Returns true if `rank` has not answered a request within its reply timeout.
  bool is_silent(int rank, TimePoint now) const;
  // Returns true if each voter that is not in `here` is dead or silent.
  bool all_others_gone(const RankSet& here, TimePoint now) const;

  // Records that `rank` was promised `ballot`, which is its own. A prepare that repeats for longer
  // than PaxosTimeouts::grace after the promise shows that its proposer does not receive answers.
  // Its ballots will come to nothing, so it is marked unresponsive.
  void note_promise(int rank, const Ballot& ballot, TimePoint now);
  // Records that `rank` has received an answer after all, so its ballots count again.
  void note_responsive(int rank) { at(rank).unresponsive = false; }
  // Returns true if a ballot of `rank` may still lead to a decision.
  bool is_of_use(int rank) const { return !is_gone(rank) && !at(rank).unresponsive; }

  // Returns how many ranks below `rank` seem to live. They propose before it does.
  int count_before(int rank) const;

 private:
  // One voter. `promised` is the last ballot of its own that this process promised, and
  // `promised_at` the time of the first promise to it.
  struct VoterState {
    std::optional<TimePoint> asked;  // time of the oldest unanswered request
    std::optional<TimePoint> given_up;
    Ballot promised;
    TimePoint promised_at;
    bool unresponsive = false;
  };

  bool is_gone(int rank) const { return dead_.has(rank) || at(rank).given_up; }
  VoterState& at(int rank) { return members_[static_cast<size_t>(rank)]; }
  const VoterState& at(int rank) const { return members_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }

  const PaxosTimeouts timeouts_;
  std::vector<VoterState> members_;
  RankSet dead_;
};

}  // namespace ringdist
