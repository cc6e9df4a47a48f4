// Ring: every rank exchanges messages with its two neighbours only, and sends and receives all the
// time. P. Patarasu, X. Yuan: "Bandwidth optimal all-reduce algorithms for clusters of
// workstations", Journal of Parallel and Distributed Computing 69(2), 2009.
//
// Reduce-scatter: the partial sum of shard s starts at rank s + 1 and visits s + 2, ..., s. Each
// rank adds its own part, and the last one, the owner s, finishes the sum. Allgather: shard s
// starts at its owner and is relayed by s + 1, s + 2, ..., until it reaches s - 1. Reduce: a
// reduce-scatter, after which every owner sends its shard to the root.

#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

// The ranks after and before this one on the ring.
struct Neighbours {
  explicit Neighbours(const Shape& shape)
      : next(wrap(shape.rank + 1, shape.size)), prev(wrap(shape.rank - 1, shape.size)) {}
  int next;
  int prev;
};

// Scratch for partial sums if this rank's input must survive. Two slots, each as long as the
// longest part, are used by turns, so that one is filled while the other is still being sent.
// total() is the scratch of so many rounds, in elements.
class Slots {
 public:
  explicit Slots(const std::vector<int64_t>& bounds) {
    for (size_t i = 0; i + 1 < bounds.size(); ++i)
      length_ = std::max(length_, bounds[i + 1] - bounds[i]);
  }
  Range at(int round, int64_t count) const {
    return {BufferId::kScratch, round % 2 * length_, count};
  }
  int64_t total(int rounds) const { return std::min(rounds, 2) * length_; }

 private:
  int64_t length_ = 0;
};

// Adds the rounds of a ring reduction, in which this rank finishes its own shard. `mine(s)` is this
// rank's part of shard s. `sum(s, k)` is the range for the sum of shard s in round k. Returns the
// range of the finished shard.
template <typename Mine, typename Sum>
Range reduce_round_the_ring(const Shape& shape, Mine mine, Sum sum, Schedule& out) {
  const Neighbours ring(shape);
  Range held = mine(ring.prev);
  for (int k = 0; k + 1 < shape.size; ++k) {
    out.steps.push_back(Step::send(held, {ring.next}, EdgeKind::kContribution));
    const int shard = wrap(shape.rank - 2 - k, shape.size);
    held = sum(shard, k);
    out.steps.push_back(Step::reduce(held, {Source{ring.prev, held}, Source{-1, mine(shard)}},
                                     /*finish=*/shard == shape.rank));
  }
  return held;
}

// Sends `own`, this rank's shard or part, and collects the others. `place(s)` is the range for that
// of rank s.
template <typename Place>
void gather(const Shape& shape, Range own, Place place, Schedule& out) {
  const Neighbours ring(shape);
  out.steps.push_back(Step::send(own, {ring.next}, EdgeKind::kResult));
  for (int k = 1; k + 1 < shape.size; ++k)
    out.steps.push_back(
        Step::relay(place(wrap(shape.rank - k, shape.size)), ring.prev, {ring.next}));
  // With two ranks there is no relay, and the last message comes from its owner.
  const EdgeKind last = shape.size == 2 ? EdgeKind::kResult : EdgeKind::kRelay;
  out.steps.push_back(Step::recv(place(ring.next), ring.prev, last));
}

Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const std::vector<int64_t> bounds = shards_of(shape, shape.size);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  const auto in_place = [&](int s, int) { return place(s); };
  const Range own = reduce_round_the_ring(shape, place, in_place, out);
  gather(shape, own, place, out);
  return out;
}

Schedule reduce_scatter(const Shape& shape) {
  if (shape.size == 1) return copy_of_own_part(shape);
  Schedule out;
  const std::vector<int64_t> bounds = input_bounds(shape);
  const auto mine = [&](int s) { return part(BufferId::kInput, bounds, s); };
  const Range result{BufferId::kOutput, 0, mine(shape.rank).count};
  const Slots slots(bounds);
  out.scratch_count = slots.total(shape.size - 2);  // the last round's sum is the result
  const auto sum = [&](int s, int k) {
    return s == shape.rank ? result : slots.at(k, mine(s).count);
  };
  reduce_round_the_ring(shape, mine, sum, out);
  return out;
}

// The root sums up in place. The other ranks use scratch, because their output must survive.
Schedule reduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  // Not shards_of(): Shape::shards is for allreduce only.
  const std::vector<int64_t> bounds = even_shards(shape.count, shape.size);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  if (shape.rank == shape.root) {
    reduce_round_the_ring(shape, place, [&](int s, int) { return place(s); }, out);
    for (int k = 1; k < shape.size; ++k) {
      const int owner = wrap(shape.rank + k, shape.size);
      out.steps.push_back(Step::recv(place(owner), owner, EdgeKind::kResult));
    }
    return out;
  }
  const Slots slots(bounds);
  out.scratch_count = slots.total(shape.size - 1);
  const auto sum = [&](int s, int k) { return slots.at(k, place(s).count); };
  const Range own = reduce_round_the_ring(shape, place, sum, out);
  out.steps.push_back(Step::send(own, {shape.root}, EdgeKind::kResult));
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const std::vector<int64_t> bounds = output_bounds(shape);
  const auto place = [&](int s) { return part(BufferId::kOutput, bounds, s); };
  const Range input{BufferId::kInput, 0, place(shape.rank).count};
  out.steps.push_back(Step::copy(place(shape.rank), input));
  // The send reads the input, so it need not wait for the copy.
  if (shape.size > 1) gather(shape, input, place, out);
  return out;
}

constexpr std::array kImpls{
    CollectiveImpl{Collective::kAllreduce, allreduce, longest_shard, {.best = true}},
    CollectiveImpl{Collective::kReduceScatter, reduce_scatter, whole, {.best = true}},
    CollectiveImpl{Collective::kReduce, reduce, longest_shard, {.best = true}},
    CollectiveImpl{Collective::kAllgather, allgather, whole}};

}  // namespace

Algorithm ring_algorithm() {
  return {.name = "ring",
          .description = "neighbours only; fewest bytes on the wire, 2 (size - 1) steps",
          .rank_ordered = false,
          .impls = kImpls,
          .cost = ring_cost};
}

// Predicts the cost. Every rank sends and receives all the time; the line between two hosts is used
// by the pair of neighbours on them.
Duration ring_cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const double size = at.size;
  const bool sharded =
      question.kind == Collective::kAllreduce || question.kind == Collective::kReduce;
  const double range = sharded ? question.bytes / size : question.bytes;
  const double rounds = question.kind == Collective::kAllreduce ? 2 * (size - 1) : size - 1;
  // After the first round, each rank sends data that it has just stored.
  const double copied = (1 + kStoredCopy * (rounds - 1)) / rounds;
  TransferCost round(question, range);
  OpCost sum(question);
  if (!at.spans()) {
    sum.then(round.send(true, 1, copied).receive(true, 1).share(size), rounds);
  } else {
    // True if some rank has both neighbours on other hosts.
    const bool alone = at.least == 1 || at.crossings == at.size;
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
