// Direct: every rank exchanges messages with every other, in one step per phase. The owner of a
// shard reduces all contributions at once in rank order. So the bits of an element depend on the
// inputs alone, and half precision rounds once.
//
// Also called direct-exchange or pairwise reduce-scatter; see R. Thakur, R. Rabenseifner, W. Gropp:
// "Optimization of Collective Communication Operations in MPICH", Int. J. of High Performance
// Computing Applications 19(1), 2005.

#include <algorithm>
#include <array>
#include <source_location>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"
#include "base/check.h"

namespace ringdist {
namespace {

// Sends a separate message to each peer. `contribution(s)` is this rank's range for peer s.
template <typename Contribution>
void send_to_each(const Shape& shape, Contribution contribution, EdgeKind edge_kind,
                  Schedule& out) {
  for (int peer : peers_after(shape))
    out.steps.push_back(Step::send(contribution(peer), {peer}, edge_kind));
}

// Receives a message from each peer. `place(s)` is the range for the message of rank s. The order
// begins with the peers that sent to this rank first: the rank before this one has it first in
// peers_after().
template <typename Place>
void receive_from_each(const Shape& shape, Place place, Schedule& out) {
  const std::vector<int> peers = peers_after(shape);
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    out.steps.push_back(Step::recv(place(*peer), *peer, EdgeKind::kResult));
}

// A reduce-scatter of shards, then an allgather of the sums. Both work in place: the sum replaces
// this rank's own shard, and results replace the contributions that were sent.
Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const std::vector<int64_t> bounds = shards_of(shape, shape.size);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  const Range own = place(shape.rank);
  send_to_each(shape, place, EdgeKind::kContribution, out);
  out.steps.push_back(reduce_in_rank_order(shape, own, own));
  out.steps.push_back(Step::send(own, peers_after(shape), EdgeKind::kResult));
  receive_from_each(shape, place, out);
  return out;
}

Schedule reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return copy_of_own_part(shape);
  Schedule out;
  const std::vector<int64_t> bounds = input_bounds(shape);
  const auto mine = [&](int s) { return part(BufferId::kInput, bounds, s); };
  const Range own = mine(shape.rank);
  const Range result{BufferId::kOutput, 0, own.count};
  send_to_each(shape, mine, EdgeKind::kContribution, out);
  out.steps.push_back(reduce_in_rank_order(shape, result, own));
  return out;
}

Schedule reduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  if (shape.rank == shape.root)
    out.steps.push_back(reduce_in_rank_order(shape, all, all));
  else
    out.steps.push_back(Step::send(all, {shape.root}, EdgeKind::kContribution));
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const std::vector<int64_t> bounds = output_bounds(shape);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  const Range input{BufferId::kInput, 0, place(shape.rank).count};
  out.steps.push_back(Step::copy(place(shape.rank), input));
  if (shape.size == 1) return out;
  out.steps.push_back(Step::send(input, peers_after(shape), EdgeKind::kResult));
  receive_from_each(shape, place, out);
  return out;
}

Schedule gather(const Shape& shape) {
  Schedule out;
  const Range input{BufferId::kInput, 0, shape.count};
  if (shape.rank != shape.root) {
    out.steps.push_back(Step::send(input, {shape.root}, EdgeKind::kResult));
    return out;
  }
  const std::vector<int64_t> bounds = output_bounds(shape);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  out.steps.push_back(Step::copy(place(shape.rank), input));
  receive_from_each(shape, place, out);
  return out;
}

Schedule scatter(const Shape& shape) {
  Schedule out;
  const Range output{BufferId::kOutput, 0, shape.count};
  if (shape.rank != shape.root) {
    out.steps.push_back(Step::recv(output, shape.root, EdgeKind::kResult));
    return out;
  }
  const std::vector<int64_t> bounds = input_bounds(shape);
  const auto theirs = [&](int s) { return part(BufferId::kInput, bounds, s); };
  send_to_each(shape, theirs, EdgeKind::kResult, out);
  out.steps.push_back(Step::copy(output, theirs(shape.rank)));
  return out;
}

// Exchanges parts in turns. In turn k each rank sends to the k-th rank after it and receives from
// the k-th before it.
//
// A long part for another host waits for the part that was sent before it. Otherwise all ranks send
// to all at once, and the lines of hosts are used unevenly at the end. It also waits for the
// receive of two turns ago, not one. So ranks stay in step, and a late rank delays only those that
// need its data. Every wait is for a smaller k, so there is no deadlock.
template <typename Sent, typename Place>
void exchange_in_turns(const Shape& shape, Sent sent, Place place, Schedule& out) {
  constexpr size_t kAhead = 2;
  std::vector<int> sends;  // indices of steps between hosts
  std::vector<int> receipts;
  for (int k = 1; k < shape.size; ++k) {
    const int to = wrap(shape.rank + k, shape.size);
    const int from = wrap(shape.rank - k, shape.size);
    Step mine = Step::send(sent(to), {to}, EdgeKind::kResult);
    if (!shape.topology.same_host(shape.rank, to)) {
      if (mine.range.count >= kTurnCount) {
        if (!sends.empty()) mine.follows.push_back(sends.back());
        if (receipts.size() >= kAhead) mine.follows.push_back(*(receipts.end() - kAhead));
      }
      sends.push_back(static_cast<int>(out.steps.size()));
    }
    out.steps.push_back(std::move(mine));
    if (!shape.topology.same_host(shape.rank, from))
      receipts.push_back(static_cast<int>(out.steps.size()));
    out.steps.push_back(Step::recv(place(from), from, EdgeKind::kResult));
  }
}

// On one host all messages start at once, because shared memory has no lines that could be used
// unevenly.
Schedule alltoall(const Shape& shape) {
  Schedule out;
  const std::vector<int64_t> from = input_bounds(shape);
  const std::vector<int64_t> to = output_bounds(shape);
  const auto theirs = [&](int s) { return part(BufferId::kInput, from, s); };
  const auto place = [&](int s) { return part(BufferId::kOutput, to, s); };
  const Range own = theirs(shape.rank);
  check(own.count == place(shape.rank).count, "an alltoall's two own parts differ");
  if (shape.topology.hosts.size() > 1) {
    exchange_in_turns(shape, theirs, place, out);
    out.steps.push_back(Step::copy(place(shape.rank), own));
    return out;
  }
  send_to_each(shape, theirs, EdgeKind::kResult, out);
  out.steps.push_back(Step::copy(place(shape.rank), own));
  receive_from_each(shape, place, out);
  return out;
}

Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  if (shape.rank == shape.root)
    out.steps.push_back(Step::send(all, peers_after(shape), EdgeKind::kResult));
  else
    out.steps.push_back(Step::recv(all, shape.root, EdgeKind::kResult));
  return out;
}

constexpr std::array kImpls{
    CollectiveImpl{Collective::kAllreduce, allreduce, longest_shard, {.for_small_groups = true}},
    CollectiveImpl{Collective::kReduceScatter, reduce_scatter, whole, {.for_small_groups = true}},
    CollectiveImpl{Collective::kReduce, reduce, whole},
    CollectiveImpl{
        Collective::kAllgather, allgather, whole, {.best = true, .for_small_groups = true}},
    CollectiveImpl{Collective::kGather, gather, whole, {.best = true}},
    CollectiveImpl{Collective::kScatter, scatter, whole, {.best = true}},
    CollectiveImpl{Collective::kAlltoall, alltoall, whole, {.best = true}},
    CollectiveImpl{Collective::kBroadcast, broadcast, whole, {.for_small_groups = true}}};

// The messages between the busiest rank and all others. Without a root that is a rank of the
// smallest host, because it has most peers on other hosts.
class AllPeers {
 public:
  explicit AllPeers(const CostQuery& question) : question_(question), at_(question.layout) {}

  // Returns the cost if each peer gets a range of its own.
  TransferCost exchange(double range) const { return all(range, at_.least - 1); }
  // Returns the cost if all get the same range, which is copied once. `copied` is less if it was
  // stored a moment ago.
  TransferCost spread(double range, double copied) const {
    return all(range, std::min<double>(copied, at_.least - 1));
  }
  // Returns the cost of ranges from all ranks to the root.
  TransferCost to_root(double range) const {
    TransferCost out = at_root(range);
    return out.receive(true, at_.at_root - 1).receive(false, at_.elsewhere(at_.at_root));
  }
  // Returns the cost of ranges from the root to all ranks.
  TransferCost from_root(double range, double copied) const {
    TransferCost out = at_root(range);
    return out.send(true, at_.at_root - 1, copied).send(false, at_.elsewhere(at_.at_root));
  }

  // Returns the time of long parts between hosts, each of which waits for the turn before.
  double turns(double range) const {
    TransferCost one(question_, range);
    one.send(false, 1).receive(false, 1).cross(1);
    return at_.elsewhere(at_.least) * one.alone();
  }

 private:
  TransferCost at_root(double range) const {
    TransferCost out(question_, range);
    return out.one_sided().cross(at_.elsewhere(at_.at_root)).share(at_.at_root - 1);
  }
  // Adds the load of the rank with most peers on other hosts.
  TransferCost all(double range, double copied) const {
    TransferCost out(question_, range);
    const double here = at_.least - 1;
    const double elsewhere = at_.elsewhere(at_.least);
    out.send(true, here, copied).receive(true, here).share(at_.most * (at_.most - 1.0));
    return out.send(false, elsewhere).receive(false, elsewhere).cross(at_.crowd);
  }

  const CostQuery& question_;
  const CostLayout& at_;
};

}  // namespace

Algorithm direct_algorithm() {
  return {.name = "direct",
          .description = "all to all; rank order, one rounding, 2 steps",
          .rank_ordered = true,
          .impls = kImpls,
          .cost = direct_cost};
}

// Every rank has messages for every other, or the root has. Cores and the lines of hosts are busy
// with them, and chains of messages matter little.

Duration direct_cost(const CostQuery& question) {
  const int size = question.layout.size;
  if (size == 1) return Duration(0);
  const double bytes = question.bytes;
  const double others = size - 1;
  const AllPeers all(question);
  OpCost sum(question);
  switch (question.kind) {
    case Collective::kAllreduce: {
      const double shard = bytes / size;
      sum.then(all.exchange(shard)).then(all.spread(shard, kStoredCopy)).add(others * shard);
      break;
    }
    case Collective::kReduceScatter:
      sum.then(all.exchange(bytes)).add(others * bytes);
      break;
    case Collective::kAlltoall:
      if (question.layout.spans() && bytes >= question.element_bytes * kTurnCount)
        sum.load(all.exchange(bytes)).chain(all.turns(bytes));
      else
        sum.then(all.exchange(bytes));
      break;
    case Collective::kAllgather:
      sum.then(all.spread(bytes, 1));
      break;
    case Collective::kReduce:
      sum.then(all.to_root(bytes)).add(others * bytes);
      break;
    case Collective::kGather:
      sum.then(all.to_root(bytes));
      break;
    case Collective::kScatter:
      sum.then(all.from_root(bytes, question.layout.at_root - 1));
      break;
    case Collective::kBroadcast:
      sum.then(all.from_root(bytes, std::min(1, question.layout.at_root - 1)));
      break;
    default:
      check_failed("a cost of what the algorithm does not have", std::source_location::current());
  }
  return sum.total();
}

}  // namespace ringdist
