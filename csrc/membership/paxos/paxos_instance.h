// One member's side of one decision: which generation follows the present one. Single-decree Paxos
// (Lamport, "Paxos Made Simple", 2001) over messages that may be late or lost, with the quorums of
// quorum_rule.h.
//
// A state machine without threads, clock or I/O. It acts only when a function is called, and only
// through its PaxosDelegate. The time is an argument. Not thread-safe.
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

// Environment of a PaxosInstance: messages, the store's vote, and the ops of the generation.
class PaxosDelegate {
 public:
  virtual ~PaxosDelegate() = default;
  // Sends to another member; the message may be lost. The delegate fills in the generation.
  virtual void send(int rank, ConsensusMessage message) = 0;
  // Ends the ops of the generation on this member without a notice to others. Returns the same
  // result for each further call.
  virtual PromiseInfo stop_and_report() = 0;
  // Reads the store's vote for this generation and calls on_vote_read() with it: nothing so far, or
  // the vote that was cast last. A store that has lost its votes counts as another store and must
  // answer with an Error. The answer may come at any time, or never.
  virtual void read_vote(const Ballot& ballot) = 0;
  // Replaces the store's vote by `vote` if it still is `before`, then calls on_vote_cast() with
  // true if it did. The answer may come at any time, or never.
  virtual void cast_vote(const std::optional<Accepted>& before, const Accepted& vote) = 0;
};

// Acceptor of one decision and, when it is this member's turn, proposer. The lowest living rank
// proposes at once and each further rank a little later. A member that has promised gives the
// proposer time, unless that one seems dead, given up or unresponsive.
class PaxosInstance {
 public:
  // `rank` is this member's. `delegate` must outlive the instance.
  PaxosInstance(Voters voters, int rank, const PaxosTimeouts& timeouts, PaxosDelegate& delegate);

  // Starts the agreement, because a caller of this process wants the next generation. Without this
  // call the instance takes part as soon as it receives a proposer's message.
  void begin(TimePoint now);
  // Returns true if the agreement has started.
  bool is_active() const { return active_; }

  // Records that another member reports `decision` as decided as of `ballot`, unless a decision
  // exists or Acceptor::may_learn() refuses this one.
  void on_decided(const Ballot& ballot, const Decision& decision) {
    if (!decided_) learn(ballot, decision, /*mine=*/false);
  }
  // Takes in a message of any kind but kDecided. `from` is the sender's rank.
  void on_message(int from, const ConsensusMessage& message, TimePoint now);
  // Records that the kernel of this host has reported the death of `rank`. The caller must have
  // taken in all messages that the dead process had sent to this one.
  void on_death(int rank, TimePoint now);
  // Stops waiting for `rank` and its ballots. The caller must not pass on its messages any more.
  void give_up(int rank, TimePoint now);
  // Answers to PaxosDelegate::read_vote() and cast_vote(). Answers for a ballot or a phase that has
  // passed are ignored.
  void on_vote_read(const Ballot& ballot, const Result<std::optional<Accepted>>& vote,
                    TimePoint now);
  void on_vote_cast(const Ballot& ballot, bool cast, TimePoint now);

  // Returns when tick() has something to do next; nothing if it waits for messages only.
  std::optional<TimePoint> next() const;
  // Starts a ballot when it is this member's turn, and repeats the requests of a ballot under way.
  void tick(TimePoint now);

  // A decision as this member has learned it.
  struct Decided {
    Ballot ballot;  // ballot as of which it holds
    Decision value;
    bool mine = false;  // this member's ballot decided it, so this member must notify the others
  };
  // Returns the decision, or nothing so far.
  const std::optional<Decided>& decided() const { return decided_; }
  const Ballot& promised() const { return acceptor_.promised(); }  // latest promise, or round 0
  // Returns the members with a death that some kernel reported.
  const RankSet& dead() const { return others_.dead(); }

  // Returns why there is no decision yet, for an error message: "no quorum: 1 of 4 voters, 3
  // needed; rank 2 is silent; ...".
  std::string describe(TimePoint now) const;

 private:
  // Returns true if the sender may send this kind for this ballot, and the round is plausible.
  bool is_in_order(int from, const ConsensusMessage& message) const;
  void on_prepare(int from, const ConsensusMessage& message, TimePoint now);
  void on_accept(int from, const ConsensusMessage& message, TimePoint now);
  // Handles a refusal, which names the later ballot that a voter has promised.
  void on_refused(const Ballot& promised, TimePoint now);
  // Records a death that some kernel has reported, to this member or to another one.
  void learn_death(int rank, TimePoint now);
  void learn_deaths(const std::vector<int32_t>& ranks, TimePoint now);
  // Records the decision, if the acceptor's state allows it, and ends the ballot.
  void learn(Ballot ballot, Decision value, bool mine);

  // Starts a ballot of this member, with a round above all that it has seen.
  void start_round(TimePoint now);
  // Continues the ballot after an answer or a timeout. The two functions below do so per phase.
  void reconsider(TimePoint now);
  void reconsider_reading(TimePoint now);
  void reconsider_writing(TimePoint now);
  // Chooses the value of the ballot, then casts the store's vote first if the quorum needs it.
  void propose(TimePoint now);
  // Accepts the value on this member and requests acceptance by all others.
  void write(TimePoint now);
  // Abandons the ballot and starts another one after a pause.
  void retry(TimePoint now);
  // Abandons the ballot in favor of another proposer.
  void drop_round();
  // Sends the ballot's current request to all members that have not answered it.
  void ask(TimePoint now);
  // Sends a reply to the proposer `to`.
  void answer(int to, ConsensusMessageKind kind, const Ballot& ballot);
  // Leaves the proposing to that ballot's proposer, for a while.
  void give_way(const Ballot& ballot, TimePoint now);
  // Schedules this member's next ballot after delay().
  void take_turn(TimePoint now);

  int self() const { return rank_; }
  int size() const { return quorum_.size(); }
  // Returns the stagger of this rank, plus a back-off that grows with the retries.
  Duration delay() const;

  const Voters voters_;
  const int rank_;
  const QuorumRule quorum_;
  const PaxosTimeouts timeouts_;
  PaxosDelegate& delegate_;
  Acceptor acceptor_;
  VoterTracker others_;
  Ballot seen_;                       // latest ballot in any message
  std::optional<BallotRound> round_;  // this member's ballot under way
  std::optional<Decided> decided_;
  bool active_ = false;
  int retries_ = 0;          // abandoned ballots of this member, up to a limit
  TimePoint turn_at_;        // when this member starts a ballot, if none of its own is under way
  TimePoint resend_at_;      // next repetition of the ballot's request
  TimePoint read_store_at_;  // before this time the store is not queried again
  Ballot gave_way_to_;       // last ballot that this member gave way to
  TimePoint gave_way_;       // since when
};

}  // namespace ringdist
