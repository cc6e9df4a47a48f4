// What a member of an agreement knows of the others: who is dead, who owes it an answer, who does
// not hear it.
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
  // The same, for a voter from which the control plane had received nothing for that long before.
  Duration grace = Milliseconds(500);
  Duration resend = Milliseconds(100);
  // The lowest rank proposes at once, each further rank this much later.
  Duration proposer_stagger = Milliseconds(20);
  // Another rank waits this long for the proposer of a ballot that was promised.
  Duration proposal_timeout = Milliseconds(500);
  // The reply timeout of a voter that was given up. A kernel may have reported its death, and that
  // notice may still be under way.
  Duration loss_report = Milliseconds(50);
};

class VoterTracker {
 public:
  VoterTracker(int size, const PaxosTimeouts& timeouts)
      : timeouts_(timeouts), members_(size), dead_(size), given_up_(size) {}

  // As a kernel reported. Whether it is news.
  bool note_death(int rank) { return dead_.add(rank); }
  const RankSet& dead() const { return dead_; }
  std::vector<int32_t> dead_ranks() const;

  // The control plane has heard nothing from it for the peer timeout.
  void suspect(int rank) { at(rank).suspected = true; }
  // Nothing that it says is listened to.
  void give_up(int rank) { given_up_.add(rank); }
  void note_request(int rank, TimePoint now) {
    if (!at(rank).asked) at(rank).asked = now;
  }
  // A question of ours: so it hears, too.
  void note_answer(int rank) { at(rank) = {}; }
  void drop_questions() {
    for (VoterState& one : members_) one.asked.reset();
  }
  // It owes an answer for too long.
  bool is_silent(int rank, TimePoint now) const;
  // Besides those: dead or silent, each of them.
  bool all_others_gone(const RankSet& here, TimePoint now) const;

  // It was promised a ballot of its own. Who asks again for what it was answered long ago does not
  // hear the answers: nothing will come of its ballots.
  void note_promise(int rank, const Ballot& ballot, TimePoint now);
  void note_responsive(int rank) { at(rank).unresponsive = false; }
  // Somebody may expect something of a ballot of its.
  bool is_of_use(int rank) const { return !is_gone(rank) && !at(rank).unresponsive; }

  // Lower ranks that seem to live.
  int count_before(int rank) const;

 private:
  struct VoterState {
    std::optional<TimePoint> asked;  // since when it owes an answer
    bool suspected = false;
    Ballot promised;
    TimePoint promised_at;
    bool unresponsive = false;
  };

  bool is_gone(int rank) const { return dead_.has(rank) || given_up_.has(rank); }
  VoterState& at(int rank) { return members_[static_cast<size_t>(rank)]; }
  const VoterState& at(int rank) const { return members_[static_cast<size_t>(rank)]; }
  int size() const { return static_cast<int>(members_.size()); }

  const PaxosTimeouts timeouts_;
  std::vector<VoterState> members_;
  RankSet dead_;
  RankSet given_up_;
};

}  // namespace ringdist
