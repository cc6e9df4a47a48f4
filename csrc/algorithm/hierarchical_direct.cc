// Hierarchical, direct between hosts. Ranks add up inside each host through shared memory, and the
// leaders of a column (algorithm/host_grid.h) exchange messages with each other in one step per
// phase. Data on a wire is encoded at most twice, as a host's sum and as a result, however many
// hosts and ranks there are. Works as direct.cc, with hosts for ranks. Gather and scatter use one
// rank of each host as its leader, for one message per host. See T. Kielmann et al.: "MagPIe: MPI's
// Collective Communication Operations for Clustered Wide Area Systems", PPoPP 1999.

#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/host_grid.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

// Adds the steps of one column on one rank. Ranks that do not lead the column exchange data with
// their own leader only.
class Column {
 public:
  Column(const HostGrid& hosts, int rank, int column)
      : hosts_(hosts), rank_(rank), column_(column), here_(hosts.leader(hosts.mine(), column)) {}

  // Returns true if this rank leads the column on its host.
  bool is_leader() const { return rank_ == here_; }

  // Adds this host's part of a sum that a rank on another host owns. `mine` is this rank's range
  // and `sum` the range in which the leader may add. Returns the leader's range of the host's sum.
  Range give(Range mine, Range sum, int owner, Schedule& out) const {
    if (!is_leader()) {
      out.steps.push_back(Step::send(mine, {here_}, hosts_.contribution_kind()));
      return mine;
    }
    const bool alone = hosts_.local().size() == 1;
    if (!alone)
      out.steps.push_back(Step::reduce(sum, hosts_.local_sources(mine, sum), /*finish=*/false));
    const Range held = alone ? mine : sum;
    out.steps.push_back(Step::send(held, {owner}, EdgeKind::kContribution));
    return held;
  }

  // Adds the sum that this host's leader owns: the contributions of all hosts, in their order.
  void take(Range mine, Range sum, Schedule& out) const {
    if (!is_leader())
      return out.steps.push_back(Step::send(mine, {here_}, hosts_.contribution_kind()));
    std::vector<Source> sources;
    for (int host = 0; host < hosts_.count(); ++host) {
      if (host == hosts_.mine()) {
        const std::vector<Source> local = hosts_.local_sources(mine, sum);
        sources.insert(sources.end(), local.begin(), local.end());
      } else {
        sources.push_back({hosts_.leader(host, column_), sum, EdgeKind::kContribution});
      }
    }
    out.steps.push_back(Step::reduce(sum, std::move(sources), /*finish=*/true));
  }

  // Distributes the final values of `owner`, which leads this column on its host, to all ranks.
  // `own` is the range where the owner has them.
  void spread(int owner, Range range, Range own, Schedule& out) const {
    if (rank_ == owner) {
      std::vector<int> to;
      for (int k = 1; k < hosts_.count(); ++k)
        to.push_back(hosts_.leader(hosts_.mine() + k, column_));
      for (const int rank : hosts_.targets(column_, /*onward=*/false)) to.push_back(rank);
      if (!to.empty()) out.steps.push_back(Step::send(own, std::move(to), EdgeKind::kResult));
    } else if (hosts_.of(owner) == hosts_.mine()) {
      out.steps.push_back(Step::recv(range, owner, EdgeKind::kResult));
    } else if (!is_leader()) {
      out.steps.push_back(Step::recv(range, here_, EdgeKind::kRelay));
    } else if (hosts_.local().size() == 1) {
      out.steps.push_back(Step::recv(range, owner, EdgeKind::kResult));
    } else {
      out.steps.push_back(Step::relay(range, owner, hosts_.targets(column_, /*onward=*/false)));
    }
  }

 private:
  const HostGrid& hosts_;
  const int rank_;
  const int column_;
  const int here_;
};

// Each column is cut into one shard per host. Sums for other hosts come first, beginning with the
// next host, because their owners wait for them.
Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const HostGrid hosts(shape);
  const std::vector<int64_t> bounds = shards_of(shape, hosts.columns_of_whole() * hosts.count());
  const auto for_each = [&](int first, auto fn) {
    for (int column = 0; column < hosts.columns_of_whole(); ++column)
      for (int k = 0; k < hosts.count(); ++k) {
        const int host = wrap(hosts.mine() + first + k, hosts.count());
        const Range shard = part(BufferId::kOutput, bounds, column * hosts.count() + host);
        fn(Column(hosts, shape.rank, column), hosts.leader(host, column), shard);
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

// Calls fn(column, owner) for every rank as the owner of its part, by hosts, from the host `first`
// places after this one.
template <typename Fn>
void for_each_owner(const HostGrid& hosts, int rank, int first, Fn fn) {
  for (int k = 0; k < hosts.count(); ++k)
    for (const int owner : hosts.ranks(hosts.mine() + first + k))
      fn(Column(hosts, rank, hosts.column_of(owner)), owner);
}

// Each sum for another host has scratch of its own. An owner adds all hosts' sums at once, so ranks
// that waited for scratch until one was added could block each other.
Schedule reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return copy_of_own_part(shape);
  Schedule out;
  const HostGrid hosts(shape);
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
  const HostGrid hosts(shape);
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
  const HostGrid hosts(shape);
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
  const HostGrid hosts(shape);
  const Range all{BufferId::kOutput, 0, shape.count};
  Column(hosts, shape.rank, hosts.column_of(shape.root)).spread(shape.root, all, all, out);
  return out;
}

// The leader of a host in a gather or a scatter. Its scratch holds the parts of its ranks one after
// another. Parts of consecutive ranks are contiguous in the root's buffer too and go in one
// message.
class Leader {
 public:
  Leader(const HostGrid& hosts, const Shape& shape, int host)
      : ranks_(hosts.ranks(host)),
        count_(shape.count),
        of_root_(host == hosts.of(shape.root)),
        rank_(of_root_ ? shape.root : hosts.leader(host, hosts.column_of(shape.root))) {}

  int rank() const { return rank_; }
  const std::vector<int>& ranks() const { return ranks_; }
  // Returns true if the leader needs scratch. The root does not, nor does a leader without other
  // ranks.
  bool collects() const { return !of_root_ && ranks_.size() > 1; }
  // Returns the scratch of the part of ranks()[place].
  Range slot(size_t place) const {
    return {BufferId::kScratch, static_cast<int64_t>(place) * count_, count_};
  }
  int64_t scratch_count() const { return static_cast<int64_t>(ranks_.size()) * count_; }

  // Calls fn(range of the root's `buffer`, range of the leader's scratch) for each such message.
  template <typename Fn>
  void for_each_message(BufferId buffer, Fn fn) const {
    for (size_t first = 0, end = 0; first < ranks_.size(); first = end) {
      for (end = first + 1; end < ranks_.size() && ranks_[end] == ranks_[end - 1] + 1;) ++end;
      const int64_t count = static_cast<int64_t>(end - first) * count_;
      fn(Range{buffer, ranks_[first] * count_, count},
         Range{BufferId::kScratch, slot(first).offset, count});
    }
  }

 private:
  const std::vector<int>& ranks_;
  const int64_t count_;
  const bool of_root_;
  const int rank_;
};

// The root receives from its own host's ranks directly. On other hosts the leader collects the
// parts of its ranks and sends them on.
Schedule gather(const Shape& shape) {
  Schedule out;
  const HostGrid hosts(shape);
  const Leader mine(hosts, shape, hosts.mine());
  const Range input{BufferId::kInput, 0, shape.count};
  const auto place = [&](int rank) {
    return Range{BufferId::kOutput, rank * shape.count, shape.count};
  };
  if (shape.rank == shape.root) {
    out.steps.push_back(Step::copy(place(shape.rank), input));
    for (const int rank : hosts.targets(0, /*onward=*/false))
      out.steps.push_back(Step::recv(place(rank), rank, EdgeKind::kResult));
    for (int k = 1; k < hosts.count(); ++k) {
      const Leader other(hosts, shape, hosts.mine() - k);
      other.for_each_message(BufferId::kOutput, [&](Range range, Range) {
        out.steps.push_back(Step::recv(range, other.rank(), EdgeKind::kResult));
      });
    }
  } else if (shape.rank == mine.rank() && mine.collects()) {
    out.scratch_count = mine.scratch_count();
    for (size_t i = 0; i < mine.ranks().size(); ++i) {
      const int rank = mine.ranks()[i];
      out.steps.push_back(rank == shape.rank ? Step::copy(mine.slot(i), input)
                                             : Step::recv(mine.slot(i), rank, EdgeKind::kResult));
    }
    mine.for_each_message(BufferId::kOutput, [&](Range, Range range) {
      out.steps.push_back(Step::send(range, {shape.root}, EdgeKind::kResult));
    });
  } else {
    const int to = shape.rank == mine.rank() ? shape.root : mine.rank();
    out.steps.push_back(Step::send(input, {to}, EdgeKind::kResult));
  }
  return out;
}

// The reverse of gather(). Messages to other hosts come first, because their leaders still have to
// distribute them.
Schedule scatter(const Shape& shape) {
  Schedule out;
  const HostGrid hosts(shape);
  const Leader mine(hosts, shape, hosts.mine());
  const Range output{BufferId::kOutput, 0, shape.count};
  const auto theirs = [&](int rank) {
    return Range{BufferId::kInput, rank * shape.count, shape.count};
  };
  if (shape.rank == shape.root) {
    for (int k = 1; k < hosts.count(); ++k) {
      const Leader other(hosts, shape, hosts.mine() + k);
      other.for_each_message(BufferId::kInput, [&](Range range, Range) {
        out.steps.push_back(Step::send(range, {other.rank()}, EdgeKind::kResult));
      });
    }
    for (const int rank : hosts.targets(0, /*onward=*/false))
      out.steps.push_back(Step::send(theirs(rank), {rank}, EdgeKind::kResult));
    out.steps.push_back(Step::copy(output, theirs(shape.rank)));
  } else if (shape.rank == mine.rank() && mine.collects()) {
    out.scratch_count = mine.scratch_count();
    mine.for_each_message(BufferId::kInput, [&](Range, Range range) {
      out.steps.push_back(Step::recv(range, shape.root, EdgeKind::kResult));
    });
    for (size_t i = 0; i < mine.ranks().size(); ++i) {
      const int rank = mine.ranks()[i];
      out.steps.push_back(rank == shape.rank ? Step::copy(output, mine.slot(i))
                                             : Step::send(mine.slot(i), {rank}, EdgeKind::kResult));
    }
  } else {
    const int from = shape.rank == mine.rank() ? shape.root : mine.rank();
    out.steps.push_back(Step::recv(output, from, EdgeKind::kResult));
  }
  return out;
}

constexpr Preference kForCodecs{.best_for_codecs_between_hosts = true, .for_small_groups = true};
// One message per host over one connection is best, because several on one line hinder each other.
constexpr Preference kForHosts{.best_between_shared_hosts = true};
constexpr std::array kImpls{
    CollectiveImpl{Collective::kAllreduce, allreduce, longest_shard, kForCodecs},
    CollectiveImpl{Collective::kReduceScatter, reduce_scatter, whole, kForCodecs},
    CollectiveImpl{Collective::kReduce, reduce, whole, {.for_small_groups = true}},
    CollectiveImpl{Collective::kAllgather, allgather, whole, kForCodecs},
    CollectiveImpl{Collective::kBroadcast, broadcast, whole, {.for_small_groups = true}},
    CollectiveImpl{Collective::kGather, gather, all_parts, kForHosts},
    CollectiveImpl{Collective::kScatter, scatter, all_parts, kForHosts}};

// Predicts the cost of an allreduce, a reduce-scatter or an allgather for the busiest rank of a
// host of that many ranks.
Duration cost_at(const CostQuery& question, double ranks) {
  const auto [hosts, columns, mine, others, columns_elsewhere, mine_elsewhere, range, reduced,
              gathered] = hierarchical_load(question, ranks);
  // A part has one owner, even if its host has several leaders.
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

// Predicts a gather or a scatter. The root has a message for each rank of its host and for each
// other host. The leaders exchange with their own ranks before or after that.
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
  // Pipelined: adds the time of the leader's own ranks for the last segment, or the first.
  const double led = at.most - 1;
  const double bytes = std::min(question.bytes, question.segment_bytes / std::max(1.0, led));
  if (led > 0) sum.pass_on(inside(led, bytes).one_sided().alone());
  return sum.total();
}

}  // namespace

Algorithm hierarchical_direct_algorithm() {
  return {.name = "hierarchical_direct",
          .description = "sums inside hosts, then all hosts to all; 2 steps between hosts",
          .rank_ordered = false,
          .impls = kImpls,
          .hierarchical = true,
          .cost = hierarchical_direct_cost};
}

// Sums inside hosts, then direct exchanges of hosts, then results inside hosts. The busiest rank is
// on the largest host or on the smallest one, where it leads several columns.

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
