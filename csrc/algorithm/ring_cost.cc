// Every rank sends and receives all the time; where hosts meet, their line is between two ranks.
#include "algorithm/cost.h"

namespace ringdist {

Duration ring_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const double size = at.size;
  const bool sharded =
      question.kind == Collective::kAllreduce || question.kind == Collective::kReduce;
  const double range = sharded ? question.bytes / size : question.bytes;
  const double rounds = question.kind == Collective::kAllreduce ? 2 * (size - 1) : size - 1;
  // After the first, each sends what it has just stored.
  const double copied = (1 + kStoredCopy * (rounds - 1)) / rounds;
  TransferCost round(question, range);
  OpCost sum(question);
  if (!at.spans()) {
    sum.then(round.send(true, 1, copied).receive(true, 1).share(size), rounds);
  } else {
    const bool alone = at.least == 1 || at.crossings == at.size;  // between two other hosts
    round.send(false, 1).cross(at.leaving).receive(!alone, 1).share(at.most - at.leaving);
    const double crossings = at.crossings / size;
    sum.load(round, rounds)
        .chain(rounds * ((1 - crossings) * round.hop(true, copied) + crossings * round.hop(false)));
  }
  if (question.kind == Collective::kReduce) {
    TransferCost last(question, range);
    const double elsewhere = at.elsewhere(at.at_root);
    last.receive(true, size - 1 - elsewhere).receive(false, elsewhere).cross(elsewhere);
    sum.then(last.one_sided());
  }
  if (question.kind != Collective::kAllgather) sum.add((size - 1) * range);
  return sum.total();
}

}  // namespace ringdist
