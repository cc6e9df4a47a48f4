// Hierarchical: a ring of hosts. Inside each host the ranks reduce and distribute through shared
// memory. Every host's line carries the traffic of a ring of hosts, divided among its ranks,
// because each leads a column (algorithm/host_grid.h). Hosts may have any number of ranks and any
// ranks.
//
// See J. Cho et al.: "BlueConnect", MLSys 2019, and H. Mikami et al.: "Massively Distributed SGD",
// arXiv:1811.05233 (2018), for rings of hosts in which each rank takes a shard.
//
// Allreduce and reduce-scatter work as in ring.cc, with hosts for ranks. In each round the leader
// adds the contributions of its host's ranks to the data from the previous host. Allgather relays
// the data from the previous host to the next one and to the ranks of the host at once.
//
// Broadcast is a chain of hosts that begins with the root's. Segments flow through all hosts of the
// chain at once, so the op takes the time of one line, not of all one after another. Reduce is the
// same chain, ending at the root's host.

#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/host_grid.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

// Adds the steps of one column on one rank. Columns come one after another in a schedule, so a rank
// that waits in one never delays others in an earlier one.
class ColumnLeader {
 public:
  ColumnLeader(const HostGrid& hosts, int rank, int column)
      : hosts_(hosts), rank_(rank), column_(column), here_(hosts.leader(hosts.mine(), column)) {}

  // Returns true if this rank is the column's leader on its host.
  bool is_me() const { return rank_ == here_; }

  // Adds round k of a reduction. The leader adds this host's contributions, and the data from the
  // previous host if k > 0, into `sum`, which is final in the last round. Returns the range of the
  // result; this is `mine` if there is nothing to add.
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

  // Distributes final values, which come from `round` hosts back, to `range` on this host's ranks
  // and to the next host. In round 0 the values are the leader's `own`.
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

// Each column is cut into one shard per host.
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

// Partial sums are in scratch, in two slots per column by turns, so that one is filled while the
// other is being sent.
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

// In round k each column's leader passes on the part of the rank that leads the column k hosts
// back. Hosts with fewer ranks have no part in the last columns.
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

// Passes the values on in the column of the root. The round of a host is its distance from the
// root's.
Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const HostGrid hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  const int round = wrap(hosts.mine() - hosts.of(shape.root), hosts.count());
  ColumnLeader(hosts, shape.rank, hosts.column_of(shape.root)).pass_on(round, all, all, out);
  return out;
}

// Reduces in the column of the root. The chain begins at the host after the root's, which is in
// round 0. Only the root has its sum in its output, because other ranks' outputs must survive.
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

// Predicts the cost of an allreduce, a reduce-scatter or an allgather for the busiest rank of a
// host of that many ranks.
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
    // The send to the next host has copied the rest.
    spread.send(true, mine * (ranks - 1), mine * kStoredCopy / hosts).receive(true, others);
    spread.share(columns * (ranks - 1));
    sum.then(onward, hosts - 1);
    if (ranks > 1) sum.load(spread, hosts).pass_on(spread.first());
  }
  return sum.total();
}

// The busiest rank is the leader of the largest host. It is in the middle of the chain, or the root
// if there are two hosts.
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

// The busiest rank is a leader in the middle of the chain, or the root if there are two hosts.
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

// In each round hosts pass on a range for each column; inside, ranks send to leaders and receive
// from them. The busiest rank is on the largest host or on the smallest one, where it leads several
// columns.

Duration hierarchical_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (!at.spans()) return direct_cost(question);
  if (question.kind == Collective::kBroadcast) return broadcast_cost(question);
  if (question.kind == Collective::kReduce) return reduce_cost(question);
  return std::max(cost_at(question, at.most), cost_at(question, at.least));
}

}  // namespace ringdist
