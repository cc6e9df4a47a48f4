// Hierarchical: a ring of hosts, in each of which the ranks add up, and pass on, through shared
// memory. Every host's line carries what a ring of hosts must, shared by its ranks: each is the
// carrier of a column (algorithm/host_grid.h). Hosts may have any number of ranks, any ranks. See
// J. Cho et al.: "BlueConnect", MLSys 2019, and H. Mikami et al.: "Massively Distributed SGD",
// arXiv:1811.05233 (2018), for rings of hosts whose ranks each take a shard.
//
// Allreduce, reduce-scatter: as ring (its file), with hosts for ranks: in each round the carrier
// adds what its host's ranks give to what came from the host before. Allgather: what comes from the
// host before is relayed to the next and to the ranks of the host at once. Broadcast: a chain of
// hosts, beginning with the root's; all but its last segments flow at once, so that it takes each
// line once. Reduce: the same chain, ending with the root's.

#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/host_grid.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

// One column's way through this host. Columns come one after another in a schedule: so a rank that
// waits in one never keeps others from an earlier one.
class ColumnLeader {
 public:
  ColumnLeader(const HostGrid& hosts, int rank, int column)
      : hosts_(hosts), rank_(rank), column_(column), here_(hosts.leader(hosts.mine(), column)) {}

  bool is_me() const { return rank_ == here_; }

  // Round k of a reduction: the sum of what came from the host before, if k > 0, and of this
  // host's, goes to `sum`, and is final in the last round. Returns where it lies: where there is
  // nothing to add, at `mine`.
  Range reduce(int round, Range mine, Range sum, Schedule& out) const {
    if (!is_me()) {
      out.steps.push_back(Step::send(mine, {here_}, hosts_.contribution_kind()));
      return mine;
    }
    std::vector<Source> sources;
    if (round > 0) sources.push_back({before(), sum});
    const std::vector<Source> local = hosts_.local_sources(mine, sum);
    sources.insert(sources.end(), local.begin(), local.end());
    const bool last = round + 1 == hosts_.count();
    Range held = mine;
    if (sources.size() > 1 || last) {
      out.steps.push_back(Step::reduce(sum, std::move(sources), last));
      held = sum;
    }
    if (!last) out.steps.push_back(Step::send(held, {after()}, EdgeKind::kContribution));
    return held;
  }

  // Final values come to this host, `round` hosts from their origin, and go on: to `range`. Where
  // the round is 0 they are the carrier's `own`.
  void pass_on(int round, Range range, Range own, Schedule& out) const {
    const EdgeKind first = EdgeKind::kResult;
    if (!is_me()) {
      const EdgeKind edge_kind = round == 0 ? first : EdgeKind::kRelay;
      return out.steps.push_back(Step::recv(range, here_, edge_kind));
    }
    std::vector<int> to = hosts_.targets(column_, /*onward=*/round + 1 < hosts_.count());
    if (round == 0) {
      if (!to.empty()) out.steps.push_back(Step::send(own, std::move(to), first));
    } else if (to.empty()) {
      const EdgeKind edge_kind = round == 1 ? first : EdgeKind::kRelay;
      out.steps.push_back(Step::recv(range, before(), edge_kind));
    } else {
      out.steps.push_back(Step::relay(range, before(), std::move(to)));
    }
  }

 private:
  int before() const { return hosts_.leader(hosts_.mine() - 1, column_); }
  int after() const { return hosts_.leader(hosts_.mine() + 1, column_); }

  const HostGrid& hosts_;
  const int rank_;
  const int column_;
  const int here_;
};

// A column is cut into one shard per host.
Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const HostGrid hosts(shape);
  const std::vector<int64_t> bounds = shards_of(shape, hosts.columns_of_whole() * hosts.count());
  const auto place = [&](int column, int host) {
    return part(BufferId::kOutput, bounds, column * hosts.count() + wrap(host, hosts.count()));
  };
  for (int column = 0; column < hosts.columns_of_whole(); ++column)
    for (int round = 0; round < hosts.count(); ++round) {
      const Range shard = place(column, hosts.mine() - 1 - round);
      (void)ColumnLeader(hosts, shape.rank, column).reduce(round, shard, shard, out);
    }
  for (int column = 0; column < hosts.columns_of_whole(); ++column)
    for (int round = 0; round < hosts.count(); ++round) {
      const Range shard = place(column, hosts.mine() - round);
      ColumnLeader(hosts, shape.rank, column).pass_on(round, shard, shard, out);
    }
  return out;
}

// Partial sums lie in scratch, those of two rounds: one is filled while the other is being sent.
Schedule reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return copy_of_own_part(shape);
  Schedule out;
  const HostGrid hosts(shape);
  const std::vector<int64_t> bounds = input_bounds(shape);
  int64_t longest = 0;
  for (int rank = 0; rank < shape.size; ++rank)
    longest = std::max(longest, part(BufferId::kInput, bounds, rank).count);
  const auto ranks_here = static_cast<int>(hosts.local().size());
  const int columns_here = (hosts.columns() + ranks_here - 1) / ranks_here;
  for (int column = 0; column < hosts.columns(); ++column) {
    for (int round = 0; round < hosts.count(); ++round) {
      const std::vector<int>& owners = hosts.ranks(hosts.mine() - 1 - round);
      if (column >= static_cast<int>(owners.size())) continue;
      const Range mine = part(BufferId::kInput, bounds, owners[static_cast<size_t>(column)]);
      const int64_t slot = round % 2 * columns_here + column / ranks_here;
      const bool last = round + 1 == hosts.count();
      const Range sum = last ? Range{BufferId::kOutput, 0, mine.count}
                             : Range{BufferId::kScratch, slot * longest, mine.count};
      const Range held = ColumnLeader(hosts, shape.rank, column).reduce(round, mine, sum, out);
      if (held.buffer == BufferId::kScratch)
        out.scratch_count = std::max(out.scratch_count, (slot + 1) * longest);
    }
  }
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const HostGrid hosts(shape);
  const std::vector<int64_t> bounds = output_bounds(shape);
  const auto place = [&](int rank) { return part(BufferId::kOutput, bounds, rank); };
  const Range input{BufferId::kInput, 0, place(shape.rank).count};
  out.steps.push_back(Step::copy(place(shape.rank), input));
  for (int column = 0; column < hosts.columns(); ++column) {
    for (int round = 0; round < hosts.count(); ++round) {
      const std::vector<int>& origins = hosts.ranks(hosts.mine() - round);
      if (column >= static_cast<int>(origins.size())) continue;
      ColumnLeader(hosts, shape.rank, column)
          .pass_on(round, place(origins[static_cast<size_t>(column)]), input, out);
    }
  }
  return out;
}

Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const HostGrid hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  const int round = wrap(hosts.mine() - hosts.of(shape.root), hosts.count());
  ColumnLeader(hosts, shape.rank, hosts.column_of(shape.root)).pass_on(round, all, all, out);
  return out;
}

Schedule reduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const HostGrid hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  const Range sum = shape.rank == shape.root ? all : Range{BufferId::kScratch, 0, shape.count};
  const int round = wrap(hosts.mine() - hosts.of(shape.root) - 1, hosts.count());
  const ColumnLeader leader(hosts, shape.rank, hosts.column_of(shape.root));
  if (leader.reduce(round, all, sum, out).buffer == BufferId::kScratch)
    out.scratch_count = sum.end();
  return out;
}

constexpr std::array kImpls{
    CollectiveImpl{Collective::kAllreduce, allreduce, longest_shard, {.best_between_hosts = true}},
    CollectiveImpl{Collective::kReduceScatter, reduce_scatter, whole, {.best_between_hosts = true}},
    CollectiveImpl{Collective::kReduce, reduce, whole, {.best_between_hosts = true}},
    CollectiveImpl{Collective::kAllgather, allgather, whole, {.best_between_hosts = true}},
    CollectiveImpl{Collective::kBroadcast, broadcast, whole, {.best_between_hosts = true}}};

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

Algorithm hierarchical_algorithm() {
  return {.name = "hierarchical",
          .description = "a ring of hosts, whose ranks share its line; a chain to or from a root",
          .rank_ordered = false,
          .impls = kImpls,
          .hierarchical = true,
          .cost = hierarchical_cost};
}

// Hosts pass on, each round a range for each column; inside, ranks give to carriers and get from
// them. The busiest rank is one of the host with most, or one of the host with fewest, which
// carries several columns.

Duration hierarchical_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (!at.spans()) return direct_cost(question);
  if (question.kind == Collective::kBroadcast) return broadcast_cost(question);
  if (question.kind == Collective::kReduce) return reduce_cost(question);
  return std::max(cost_at(question, at.most), cost_at(question, at.least));
}

}  // namespace ringdist
