// One member's side of one decision: which generation follows this one. Single-decree Paxos
// (Lamport, "Paxos Made Simple", 2001) over messages that may be late or lost, with the quorums of
// quorum_rule.h. A state machine: it does nothing but when it is told something, and then only
// through its host. Not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "membership/paxos/ballot_round.h"
#include "membership/paxos/consensus_message.h"
#include "membership/paxos/decision.h"
#include "membership/paxos/quorum_rule.h"
#include "membership/paxos/voter_tracker.h"

namespace ringdist {

class PaxosDelegate {
 public:
  virtual ~PaxosDelegate() = default;
  // To another member. Generation and nonce are the host's to fill in.
  virtual void send(int rank, ConsensusMessage message) = 0;
  // Ends the ops of the generation on this member; from then on always the same.
  virtual PromiseInfo stop_and_report() = 0;
  // Has on_vote_read called with what the store's vote for this generation is: nothing so far, or
  // what was cast last. A store that has lost its votes is another one, and answers with an Error.
  virtual void read_vote(const Ballot& ballot) = 0;
  // Has on_vote_cast called: whether the vote was still `before`, and is `vote` from now on.
  virtual void cast_vote(const std::optional<Accepted>& before, const Accepted& vote) = 0;
};

class PaxosInstance {
 public:
  // `rank`: of this member.
  PaxosInstance(Voters electors, int rank, const PaxosTimeouts& timeouts, PaxosDelegate& delegate);

  // Someone here wants a decision. Without that it takes part once it hears from others.
  void begin(TimePoint now);
  bool is_active() const { return active_; }

  // As of that ballot.
  void on_decided(const Ballot& ballot, const Decision& decision) {
    if (!decided_) learn(ballot, decision, /*mine=*/false);
  }
  // Of all other kinds.
  void on_message(int from, const ConsensusMessage& message, TimePoint now);
  // The kernel of this host reports it, and all that it had sent to this process was taken in.
  void on_death(int rank, TimePoint now);
  // The control plane has heard nothing from it for the peer timeout.
  void suspect(int rank);
  // It is not waited for, and of what it says the caller passes nothing on any more.
  void give_up(int rank, TimePoint now);
  void on_vote_read(const Ballot& ballot, const Result<std::optional<Accepted>>& vote,
                    TimePoint now);
  void on_vote_cast(const Ballot& ballot, bool cast, TimePoint now);

  // When tick() has something to do; nothing: only when told.
  std::optional<TimePoint> next() const;
  void tick(TimePoint now);

  struct Decided {
    Ballot ballot;  // as of which it holds
    Decision value;
    bool mine = false;  // this member's ballot decided it: the others are to be told
  };
  const std::optional<Decided>& decided() const { return decided_; }
  const Ballot& promised() const { return acceptor_.promised(); }
  const RankSet& dead() const { return others_.dead(); }

  // "no quorum: 1 of 4 voters, 3 needed; rank 2 is silent, ..."
  std::string describe(TimePoint now) const;

 private:
  bool is_in_order(int from, const ConsensusMessage& message) const;
  void on_prepare(int from, const ConsensusMessage& message, TimePoint now);
  void on_accept(int from, const ConsensusMessage& message, TimePoint now);
  void on_refused(const Ballot& promised, TimePoint now);
  void learn_death(int rank, TimePoint now);
  void learn_deaths(const std::vector<int32_t>& ranks, TimePoint now);
  void learn(Ballot ballot, Decision value, bool mine);

  void start_round(TimePoint now);
  void reconsider(TimePoint now);
  void reconsider_reading(TimePoint now);
  void reconsider_writing(TimePoint now);
  void propose(TimePoint now);
  void write(TimePoint now);
  void retry(TimePoint now);
  void drop_round();
  void ask(TimePoint now);
  void answer(int to, ConsensusMessageKind kind, const Ballot& ballot);
  // Leaves the proposing to that ballot's proposer, for a while.
  void give_way(const Ballot& ballot, TimePoint now);
  void take_turn(TimePoint now);

  int self() const { return rank_; }
  int size() const { return quorum_.size(); }
  Duration delay() const;

  const Voters voters_;
  const int rank_;
  const QuorumRule quorum_;
  const PaxosTimeouts timeouts_;
  PaxosDelegate& delegate_;
  Acceptor acceptor_;
  VoterTracker others_;
  Ballot seen_;  // the latest
  std::optional<BallotRound> round_;
  std::optional<Decided> decided_;
  bool active_ = false;
  int retries_ = 0;  // as a proposer
  TimePoint turn_at_;
  TimePoint resend_at_;
  TimePoint read_store_at_;
  Ballot gave_way_to_;
  TimePoint gave_way_;
};

}  // namespace ringdist
