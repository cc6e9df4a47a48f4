// Sums inside hosts, hosts to hosts at once, results inside hosts. The busiest rank is one of the
// host with most, or one of the host with fewest, which carries several columns.
#include <algorithm>

#include "algorithm/cost.h"

namespace ringdist {
namespace {

// Of a host of that many ranks.
Duration cost_at(const CostQuery& question, double ranks) {
  const auto [hosts, columns, mine, others, columns_elsewhere, mine_elsewhere, range, reduced,
              gathered] = hierarchical_load(question, ranks);
  // A part has one owner, whatever else its host carries.
  const double to_owners = mine_elsewhere * (hosts - 1);
  const double own = reduced && gathered ? to_owners : hosts - 1;
  TransferCost exchanged(question, range);
  exchanged.send(false, reduced ? to_owners : own).receive(false, gathered ? to_owners : own);
  exchanged.cross(std::max(columns_elsewhere, reduced && gathered ? columns : ranks) * (hosts - 1));
  OpCost sum(question);
  if (reduced) {
    TransferCost given(question, range);
    given.send(true, others * hosts).receive(true, mine * (ranks - 1) * hosts);
    given.share(columns * (ranks - 1) * hosts);
    if (ranks > 1) sum.then(given);
    sum.then(exchanged).add(hosts * mine * ranks * range);
  }
  if (gathered) {
    TransferCost spread(question, range);
    spread.send(true, mine * (ranks - 1) * hosts, mine * hosts * kStoredCopy);
    spread.receive(true, others * hosts).share(columns * (ranks - 1) * hosts);
    sum.then(exchanged);
    if (ranks > 1) sum.load(spread).pass_on(spread.first());
  }
  return sum.total();
}

Duration broadcast_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  TransferCost all(question, question.bytes);
  all.send(false, at.hosts - 1).send(true, at.at_root - 1, 0).cross(at.hosts - 1);
  all.share(at.most - 1).one_sided();
  OpCost sum(question);
  sum.then(all);
  if (at.most > 1) sum.pass_on(all.hop(true, 0));
  return sum.total();
}

Duration reduce_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  OpCost sum(question);
  TransferCost given(question, question.bytes);
  given.receive(true, at.most - 1).share(at.most - 1).one_sided();
  if (at.most > 1) sum.chain(given.first()).add((at.most - 1) * question.bytes);
  TransferCost taken(question, question.bytes);
  taken.receive(true, at.at_root - 1).receive(false, at.hosts - 1).cross(at.hosts - 1);
  sum.then(taken.one_sided()).add((at.at_root + at.hosts - 2) * question.bytes);
  return sum.total();
}

// A gather or a scatter: the root has a message for each rank of its host, and for each other host.
// The leaders' own ranks come before, or after.
Duration rooted_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  const auto moved = [&](TransferCost ranges, bool inside, double count) {
    return question.kind == Collective::kGather ? ranges.receive(inside, count)
                                                : ranges.send(inside, count);
  };
  const auto inside = [&](double ranks, double bytes) {
    return moved(TransferCost(question, bytes), /*inside=*/true, ranks).share(ranks);
  };
  const double others = at.hosts - 1.0;
  const TransferCost of_host(question, at.elsewhere(at.at_root) / others * question.bytes);
  OpCost sum(question);
  sum.load(inside(at.at_root - 1, question.bytes));
  sum.then(moved(of_host, /*inside=*/false, others).cross(others).one_sided());
  // Segment by segment: what a leader's own ranks have of the last one, or of the first.
  const double led = at.most - 1;
  const double bytes = std::min(question.bytes, question.segment_bytes / std::max(1.0, led));
  if (led > 0) sum.pass_on(inside(led, bytes).one_sided().alone());
  return sum.total();
}

}  // namespace

Duration hierarchical_direct_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (!at.spans()) return direct_cost(question);
  if (question.kind == Collective::kBroadcast) return broadcast_cost(question);
  if (question.kind == Collective::kReduce) return reduce_cost(question);
  if (question.kind == Collective::kGather || question.kind == Collective::kScatter)
    return rooted_cost(question);
  return std::max(cost_at(question, at.most), cost_at(question, at.least));
}

}  // namespace ringdist
