// Sums inside hosts, hosts to hosts at once, results inside hosts. The busiest rank is one of the
// host with most, or one of the host with fewest, which carries several columns.
#include <algorithm>

#include "algorithm/cost.h"

namespace ringdist {
namespace {

// Of a host of that many ranks.
Duration cost_at(const CostQuestion& question, double ranks) {
  const auto [hosts, columns, mine, others, range, reduced, gathered] = by_hosts(question, ranks);
  Ranges exchanged(question, range);
  exchanged.send(false, mine * (hosts - 1)).receive(false, mine * (hosts - 1));
  exchanged.cross(columns * (hosts - 1));
  CostSum sum(question);
  if (reduced) {
    Ranges given(question, range);
    given.send(true, others * hosts).receive(true, mine * (ranks - 1) * hosts);
    given.share(columns * (ranks - 1) * hosts);
    if (ranks > 1) sum.then(given);
    sum.then(exchanged).add(hosts * mine * ranks * range);
  }
  if (gathered) {
    Ranges spread(question, range);
    spread.send(true, mine * (ranks - 1) * hosts, mine * hosts * kStoredCopy);
    spread.receive(true, others * hosts).share(columns * (ranks - 1) * hosts);
    sum.then(exchanged);
    if (ranks > 1) sum.load(spread).pass_on(spread.first());
  }
  return sum.total();
}

Duration broadcast_cost(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  Ranges all(question, question.bytes);
  all.send(false, at.hosts - 1).send(true, at.at_root - 1, 0).cross(at.hosts - 1);
  all.share(at.most - 1).one_sided();
  CostSum sum(question);
  sum.then(all);
  if (at.most > 1) sum.pass_on(all.hop(true, 0));
  return sum.total();
}

Duration reduce_cost(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  CostSum sum(question);
  Ranges given(question, question.bytes);
  given.receive(true, at.most - 1).share(at.most - 1).one_sided();
  if (at.most > 1) sum.chain(given.first()).add((at.most - 1) * question.bytes);
  Ranges taken(question, question.bytes);
  taken.receive(true, at.at_root - 1).receive(false, at.hosts - 1).cross(at.hosts - 1);
  sum.then(taken.one_sided()).add((at.at_root + at.hosts - 2) * question.bytes);
  return sum.total();
}

// What the root has of the ranks of its host, and the leaders of theirs.
Ranges parts(const CostQuestion& question) { return Ranges(question, question.bytes); }

// A leader's: one message for all ranks of its host.
Ranges of_hosts(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  const double ranks = at.elsewhere(at.at_root) / (at.hosts - 1.0);
  return Ranges(question, ranks * question.bytes).cross(at.hosts - 1).one_sided();
}

Duration gather_cost(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  CostSum sum(question);
  const double here = at.at_root - 1;
  sum.load(parts(question).receive(true, here).share(here));
  sum.then(of_hosts(question).receive(false, at.hosts - 1));
  const double led = at.most - 1;
  if (led > 0) sum.pass_on(parts(question).receive(true, led).share(led).one_sided().alone());
  return sum.total();
}

Duration scatter_cost(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  CostSum sum(question);
  const double here = at.at_root - 1;
  sum.load(parts(question).send(true, here).share(here));
  sum.then(of_hosts(question).send(false, at.hosts - 1));
  const double led = at.most - 1;
  if (led > 0) sum.pass_on(parts(question).send(true, led).share(led).one_sided().alone());
  return sum.total();
}

}  // namespace

Duration hierarchical_direct_cost(const CostQuestion& question) {
  const CostLayout& at = question.layout;
  if (!at.spans()) return direct_cost(question);
  if (question.kind == Collective::kBroadcast) return broadcast_cost(question);
  if (question.kind == Collective::kReduce) return reduce_cost(question);
  if (question.kind == Collective::kGather) return gather_cost(question);
  if (question.kind == Collective::kScatter) return scatter_cost(question);
  return std::max(cost_at(question, at.most), cost_at(question, at.least));
}

}  // namespace ringdist
