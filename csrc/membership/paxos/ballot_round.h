// A proposer's account of one ballot: who promised, who accepted.
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

struct BallotRound {
  // The store votes before anybody else, and only for what nothing came between: its vote was read,
  // not promised.
  enum class Phase : uint8_t { kReading, kCasting, kWriting };

  BallotRound(const Ballot& its_ballot, RankSet known_dead, TimePoint now)
      : ballot(its_ballot),
        dead(std::move(known_dead)),
        promised(dead.size()),
        accepted(dead.size()),
        phase_began(now) {}

  void on_promise(int rank, const std::optional<Accepted>& has, PromiseInfo standing) {
    if (!promised.add(rank)) return;
    standings.emplace(rank, std::move(standing));
    see(has);
  }
  void enter(Phase next, TimePoint now) {
    phase = next;
    phase_began = now;
  }
  // Who has answered its question.
  const RankSet& answered() const { return phase == Phase::kWriting ? accepted : promised; }
  // The value of the latest ballot is the one that may have been decided.
  void see(const std::optional<Accepted>& has) {
    if (has && (!latest || latest->ballot < has->ballot)) latest = has;
  }

  const Ballot ballot;
  const RankSet dead;  // when it began
  Phase phase = Phase::kReading;
  RankSet promised;
  RankSet accepted;
  TimePoint phase_began;
  std::map<int, PromiseInfo> standings;  // of those who promised
  std::optional<Accepted> latest;        // of what they had accepted
  bool store_read = false;
  bool store_cast = false;
  std::optional<Accepted> store_had;  // when it was read
  std::optional<Decision> value;      // once it casts or writes
};

// Those who decide: the members of a generation, in the order of their ranks.
struct Voters {
  GenerationId generation;
  std::vector<ProcessId> members;
};

// The next generation, of who promised in a round and lives, as far as that is known: `dead` have
// died. Newcomers in the order of their numbers.
Decision compose_decision(const Voters& electors, const BallotRound& round, const RankSet& dead);

}  // namespace ringdist
