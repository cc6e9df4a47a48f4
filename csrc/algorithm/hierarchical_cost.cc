// Hosts pass on, each round a range for each column; inside, ranks give to carriers and get from
// them. The busiest rank is one of the host with most, or one of the host with fewest, which
// carries several columns.
#include <algorithm>

#include "algorithm/cost.h"

namespace ringdist {
namespace {

// Of a host of that many ranks.
Duration cost_at(const CostQuery& question, double ranks) {
  const auto [hosts, columns, mine, others, columns_elsewhere, mine_elsewhere, range, reduced,
              gathered] = hierarchical_load(question, ranks);
  TransferCost onward(question, range);
  onward.send(false, mine_elsewhere).receive(false, mine_elsewhere).cross(columns_elsewhere);
  OpCost sum(question);
  if (reduced) {
    TransferCost given(question, range);
    given.send(true, others).receive(true, mine * (ranks - 1)).share(columns * (ranks - 1));
    if (ranks > 1) sum.load(given, hosts).chain(given.first());
    sum.then(onward, hosts - 1).add(hosts * mine * ranks * range);
  }
  if (gathered) {
    TransferCost spread(question, range);
    // What goes on besides is copied for that.
    spread.send(true, mine * (ranks - 1), mine * kStoredCopy / hosts).receive(true, others);
    spread.share(columns * (ranks - 1));
    sum.then(onward, hosts - 1);
    if (ranks > 1) sum.load(spread, hosts).pass_on(spread.first());
  }
  return sum.total();
}

Duration broadcast_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  TransferCost all(question, question.bytes);
  all.send(false, 1).send(true, at.most - 1, 0).cross(1).share(at.most - 1);
  if (at.hosts > 2) all.receive(false, 1);
  OpCost sum(question);
  sum.load(all.one_sided()).chain(all.hop(false)).pass_on((at.hosts - 2) * all.hop(false));
  if (at.most > 1) sum.pass_on(all.hop(true, 0));
  return sum.total();
}

// The busiest rank is a carrier in the middle, or the root where there are two hosts.
Duration reduce_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  TransferCost all(question, question.bytes);
  all.receive(false, 1).receive(true, at.most - 1).cross(1).share(at.most - 1);
  if (at.hosts > 2) all.send(false, 1, kStoredCopy);
  OpCost sum(question);
  sum.load(all.one_sided()).chain(all.hop(false)).pass_on((at.hosts - 2) * all.hop(false));
  if (at.most > 1) sum.chain(all.hop(true));
  return sum.add(at.most * question.bytes).total();
}

}  // namespace

Duration hierarchical_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (!at.spans()) return direct_cost(question);
  if (question.kind == Collective::kBroadcast) return broadcast_cost(question);
  if (question.kind == Collective::kReduce) return reduce_cost(question);
  return std::max(cost_at(question, at.most), cost_at(question, at.least));
}

}  // namespace ringdist
