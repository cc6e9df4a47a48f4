// Proposer's record of one Paxos ballot: which voters have promised and accepted, and which value
// the ballot proposes. Plain state without I/O; PaxosInstance owns it and advances it. Not
// thread-safe.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "membership/paxos/consensus_message.h"
#include "membership/paxos/decision.h"
#include "membership/paxos/quorum_rule.h"

namespace ringdist {

// One ballot of a proposer, from its prepare messages to its decision. PaxosInstance creates it
// when it starts a ballot, and drops it when the ballot was overtaken, failed or decided.
struct BallotRound {
  // Phases of a ballot, in order. In kReading it collects promises, and reads the store's vote if
  // the promises are no quorum without it. In kCasting, which only a ballot that needs the store's
  // vote enters, it casts that vote. In kWriting it sends the value to all members for acceptance.
  //
  // The store votes before any member accepts. It cannot promise to ignore earlier ballots, so its
  // vote is a compare-and-set against the vote that was read: success proves that nothing came
  // between.
  enum class Phase : uint8_t { kReading, kCasting, kWriting };

  // `known_dead` are the members with a reported death when the ballot begins. Its size is the
  // number of voters.
  BallotRound(const Ballot& its_ballot, RankSet known_dead, TimePoint now)
      : ballot(its_ballot),
        dead(std::move(known_dead)),
        promised(dead.size()),
        accepted(dead.size()),
        phase_began(now) {}

  // Records the promise of `rank`: the value it has accepted before, if any, and its promise info.
  // A repeated promise is ignored.
  void on_promise(int rank, const std::optional<Accepted>& has, PromiseInfo info) {
    if (!promised.add(rank)) return;
    promises.emplace(rank, std::move(info));
    see(has);
  }
  // Enters the phase `next` and restarts its timeout.
  void enter(Phase next, TimePoint now) {
    phase = next;
    phase_began = now;
  }
  // Returns the voters that have answered the current request: accepted in kWriting, promised
  // before.
  const RankSet& answered() const { return phase == Phase::kWriting ? accepted : promised; }
  // Keeps the accepted value of the latest ballot. Only that value may have been decided, so the
  // proposer must propose it instead of its own.
  void see(const std::optional<Accepted>& has) {
    if (has && (!latest || latest->ballot < has->ballot)) latest = has;
  }

  const Ballot ballot;
  const RankSet dead;                   // members with a reported death when the ballot began
  Phase phase = Phase::kReading;        // current phase
  RankSet promised;                     // voters that promised, this process included
  RankSet accepted;                     // voters that accepted, this process included
  TimePoint phase_began;                // start of `phase`, for its timeout
  std::map<int, PromiseInfo> promises;  // promise info by rank
  std::optional<Accepted> latest;       // latest value that a voter or the store had accepted
  bool store_read = false;              // the store's vote was read
  bool store_cast = false;              // the store voted for this ballot
  std::optional<Accepted> store_had;    // the store's vote when it was read
  std::optional<Decision> value;        // proposed value, from kCasting on
};

// Voters of a decision: the members of the current generation, by rank. They decide on the next
// one.
struct Voters {
  GenerationId generation;
  std::vector<ProcessId> members;
};

// Returns the proposer's own value, for a ballot in which no earlier value has to be kept.
// Survivors are the members that promised in `round` and are not in `dead`, in their old order.
// Members in `dead` are listed as died, others that did not promise as silent.
//
// Newcomers follow the survivors, ordered by process id, as long as the smallest size limit of any
// survivor allows. The store stays the old one if all survivors reach it, or if none can serve
// another; else the lowest rank that can serve one provides it.
Decision compose_decision(const Voters& voters, const BallotRound& round, const RankSet& dead);

}  // namespace ringdist
