// Hierarchical, direct between hosts: inside each the ranks add up through shared memory, and the
// carriers of a column (algorithm/hosts.h) talk to each other at once, in one step per phase. What
// crosses a wire is encoded twice at most, once as a host's sum and once as a result, however many
// hosts and ranks there are. As direct (its file), with hosts for ranks. See T. Kielmann et al.:
// "MagPIe: MPI's Collective Communication Operations for Clustered Wide Area Systems", PPoPP 1999.
#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/hosts.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

// One column's way through one rank.
class Column {
 public:
  Column(const Hosts& hosts, int rank, int column)
      : hosts_(hosts), rank_(rank), column_(column), here_(hosts.carrier(hosts.mine(), column)) {}

  bool is_carrier() const { return rank_ == here_; }

  // This host's part of a sum whose owner is on another: `mine` is this rank's, `sum` where the
  // carrier may add. Returns where the carrier has it.
  Range give(Range mine, Range sum, int owner, Schedule& out) const {
    if (!is_carrier()) {
      out.steps.push_back(Step::send(mine, {here_}, EdgeMark::kInside));
      return mine;
    }
    const bool alone = hosts_.local().size() == 1;
    if (!alone) out.steps.push_back(Step::reduce(sum, local_sources(mine, sum), /*finish=*/false));
    const Range held = alone ? mine : sum;
    out.steps.push_back(Step::send(held, {owner}, EdgeMark::kContribution));
    return held;
  }

  // The sum that this host's carrier owns: of all hosts, in their order.
  void take(Range mine, Range sum, Schedule& out) const {
    if (!is_carrier()) return out.steps.push_back(Step::send(mine, {here_}, EdgeMark::kInside));
    std::vector<Source> sources;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine()) {
        const std::vector<Source> local = local_sources(mine, sum);
        sources.insert(sources.end(), local.begin(), local.end());
      } else {
        sources.push_back({hosts_.carrier(host, column_), sum, EdgeMark::kContribution});
      }
    }
    out.steps.push_back(Step::reduce(sum, std::move(sources), /*finish=*/true));
  }

  // Final values of `owner`, which carries this column on its host, to all. `own`: where it has
  // them.
  void spread(int owner, Range range, Range own, Schedule& out) const {
    if (rank_ == owner) {
      std::vector<int> to;
      for (int k = 1; k < hosts_.count(); ++k)
        to.push_back(hosts_.carrier(hosts_.mine() + k, column_));
      for (const int rank : hosts_.targets(column_, /*onward=*/false)) to.push_back(rank);
      if (!to.empty()) out.steps.push_back(Step::send(own, std::move(to), EdgeMark::kResult));
    } else if (hosts_.of(owner) == hosts_.mine()) {
      out.steps.push_back(Step::recv(range, owner, EdgeMark::kResult));
    } else if (!is_carrier()) {
      out.steps.push_back(Step::recv(range, here_, EdgeMark::kRelay));
    } else if (hosts_.local().size() == 1) {
      out.steps.push_back(Step::recv(range, owner, EdgeMark::kResult));
    } else {
      out.steps.push_back(Step::relay(range, owner, hosts_.targets(column_, /*onward=*/false)));
    }
  }

 private:
  std::vector<Source> local_sources(Range mine, Range sum) const {
    std::vector<Source> out;
    for (const int rank : hosts_.local())
      out.push_back(rank == rank_ ? Source{-1, mine} : Source{rank, sum, EdgeMark::kInside});
    return out;
  }

  const Hosts& hosts_;
  const int rank_;
  const int column_;
  const int here_;
};

// A column is cut into one shard per host. First what others wait for, the next host's at first.
Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Hosts hosts(shape);
  const std::vector<int64_t> bounds = shards_of(shape, hosts.columns() * hosts.count());
  const auto for_each = [&](int first, auto fn) {
    for (int column = 0; column < hosts.columns(); ++column)
      for (int k = 0; k < hosts.count(); ++k) {
        const int host = wrap(hosts.mine() + first + k, hosts.count());
        const Range shard = part(BufferId::kOutput, bounds, column * hosts.count() + host);
        fn(Column(hosts, shape.rank, column), hosts.carrier(host, column), shard);
      }
  };
  for_each(1, [&](const Column& column, int owner, Range shard) {
    if (hosts.of(owner) == hosts.mine())
      column.take(shard, shard, out);
    else
      (void)column.give(shard, shard, owner, out);
  });
  for_each(0, [&](const Column& column, int owner, Range shard) {
    column.spread(owner, shard, shard, out);
  });
  return out;
}

// Calls fn(column, owner) for every rank as the owner of its part, host by host from `first` hosts
// on.
template <typename Fn>
void for_each_owner(const Hosts& hosts, int rank, int first, Fn fn) {
  for (int k = 0; k < hosts.count(); ++k)
    for (const int owner : hosts.ranks(hosts.mine() + first + k))
      fn(Column(hosts, rank, hosts.column_of(owner)), owner);
}

// Each sum for another host has scratch of its own: an owner adds all hosts' at once, and who would
// wait for room until one was added could keep all from adding.
Schedule reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return copy_of_own_part(shape);
  Schedule out;
  const Hosts hosts(shape);
  const std::vector<int64_t> bounds = input_bounds(shape);
  for_each_owner(hosts, shape.rank, 1, [&](const Column& column, int owner) {
    const Range mine = part(BufferId::kInput, bounds, owner);
    if (hosts.of(owner) == hosts.mine())
      return column.take(mine, {BufferId::kOutput, 0, mine.count}, out);
    const Range sum{BufferId::kScratch, out.scratch_count, mine.count};
    if (column.give(mine, sum, owner, out) == sum) out.scratch_count = sum.end();
  });
  return out;
}

Schedule reduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Hosts hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  const Column column(hosts, shape.rank, hosts.column_of(shape.root));
  if (hosts.of(shape.root) == hosts.mine())
    column.take(all, all, out);
  else if (const Range sum{BufferId::kScratch, 0, shape.count};
           column.give(all, sum, shape.root, out) == sum)
    out.scratch_count = sum.end();
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const Hosts hosts(shape);
  const std::vector<int64_t> bounds = output_bounds(shape);
  const auto place = [&](int rank) { return part(BufferId::kOutput, bounds, rank); };
  const Range input{BufferId::kInput, 0, place(shape.rank).count};
  out.steps.push_back(Step::copy(place(shape.rank), input));
  for_each_owner(hosts, shape.rank, 0, [&](const Column& column, int owner) {
    column.spread(owner, place(owner), input, out);
  });
  return out;
}

Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Hosts hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  Column(hosts, shape.rank, hosts.column_of(shape.root)).spread(shape.root, all, all, out);
  return out;
}

Schedule build(Collective kind, const Shape& shape) {
  switch (kind) {
    case Collective::kAllreduce:
      return allreduce(shape);
    case Collective::kReduceScatter:
      return reduce_scatter(shape);
    case Collective::kReduce:
      return reduce(shape);
    case Collective::kAllgather:
      return allgather(shape);
    case Collective::kBroadcast:
      return broadcast(shape);
    default:
      unsupported("hierarchical_direct", kind);
  }
}

constexpr std::array kCollectives{Collective::kAllreduce, Collective::kReduceScatter,
                                  Collective::kReduce, Collective::kAllgather,
                                  Collective::kBroadcast};
constexpr std::array kBestForCodecs{Collective::kAllreduce, Collective::kReduceScatter,
                                    Collective::kAllgather};

int64_t longest_range(Collective kind, int64_t count, int shards) {
  return kind == Collective::kAllreduce ? longest_shard(count, shards) : count;
}

}  // namespace

Algorithm hierarchical_direct_algorithm() {
  return {.name = "hierarchical_direct",
          .description = "sums inside hosts, then all hosts to all; 2 steps between hosts",
          .rank_ordered = false,
          .collectives = kCollectives,
          .best_for = {},
          .best_for_codecs_between_hosts = kBestForCodecs,
          .by_hosts = true,
          .for_few = kCollectives,
          .build = build,
          .longest_range = longest_range,
          .cost = hierarchical_direct_cost};
}

}  // namespace ringdist
