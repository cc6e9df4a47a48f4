#pragma once

#include <vector>

#include "membership/paxos/ballot_round.h"
#include "membership/paxos/decision.h"

namespace ringdist {

// Those who decide: the members of a generation, in the order of their ranks.
struct Voters {
  GenerationId generation;
  std::vector<ProcessId> members;
};

// The next generation, of who promised in a round and lives, as far as that is known: `dead` have
// died. Newcomers in the order of their numbers.
Decision compose_decision(const Voters& electors, const BallotRound& round, const RankSet& dead);

}  // namespace ringdist
