// Ring: every rank talks to its two neighbours only, and sends and receives all the time.
// P. Patarasu, X. Yuan: "Bandwidth optimal all-reduce algorithms for clusters of workstations",
// Journal of Parallel and Distributed Computing 69(2), 2009.
//
// Reduce-scatter: the partial sum of shard s starts at rank s + 1 and visits s + 2, ..., s; each
// adds its own part, the last (the owner, s) finishes it. Allgather: shard s starts at its owner
// and is relayed by s + 1, s + 2, ...; the last to have it is s - 1.
#include <algorithm>
#include <array>

#include "algorithm/ranges.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

struct Neighbours {
  explicit Neighbours(const Shape& shape)
      : next(wrap(shape.rank + 1, shape.size)), prev(wrap(shape.rank - 1, shape.size)) {}
  int next;
  int prev;
};

// The shard that arrives in round k >= 0 of a reduce-scatter; rank r sends round 0's from r - 1.
int arriving(const Shape& shape, int k) { return wrap(shape.rank - 2 - k, shape.size); }

// Sends `own`, which this rank owns, from `from` and collects the others: `place(s)` is where shard
// s goes.
template <typename Place>
void gather(const Shape& shape, Range own, Place place, Schedule& out) {
  const Neighbours ring(shape);
  out.steps.push_back(Step::send(own, {ring.next}, EdgeMark::kResult));
  for (int k = 1; k + 1 < shape.size; ++k)
    out.steps.push_back(
        Step::relay(place(wrap(shape.rank - k, shape.size)), ring.prev, {ring.next}));
  // With two ranks nobody relays: what comes last comes from its owner.
  const EdgeMark last = shape.size == 2 ? EdgeMark::kResult : EdgeMark::kRelay;
  out.steps.push_back(Step::recv(place(ring.next), ring.prev, last));
}

Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const std::vector<int64_t> bounds = shards_of(shape);
  const Neighbours ring(shape);
  Range held = output_shard(bounds, ring.prev);
  for (int k = 0; k + 1 < shape.size; ++k) {
    out.steps.push_back(Step::send(held, {ring.next}, EdgeMark::kContribution));
    held = output_shard(bounds, arriving(shape, k));
    const bool finish = k + 2 == shape.size;
    out.steps.push_back(Step::reduce(held, {Source{ring.prev, held}, Source{-1, held}}, finish));
  }
  gather(shape, held, [&](int s) { return output_shard(bounds, s); }, out);
  return out;
}

// The input must survive, so partial sums live in scratch: two shards in turn, so that one is
// filled while the other is still being sent.
Schedule reduce_scatter(const Shape& shape) {
  Schedule out;
  const Range result{BufferId::kOutput, 0, shape.count};
  if (shape.size == 1) {
    out.steps.push_back(Step::copy(result, part(BufferId::kInput, 0, shape.count)));
    return out;
  }
  const Neighbours ring(shape);
  out.scratch_count = std::min(shape.size - 2, 2) * shape.count;
  Range held = part(BufferId::kInput, ring.prev, shape.count);
  for (int k = 0; k + 1 < shape.size; ++k) {
    out.steps.push_back(Step::send(held, {ring.next}, EdgeMark::kContribution));
    const bool finish = k + 2 == shape.size;
    held = finish ? result : part(BufferId::kScratch, k % 2, shape.count);
    const Range mine = part(BufferId::kInput, arriving(shape, k), shape.count);
    out.steps.push_back(Step::reduce(held, {Source{ring.prev, held}, Source{-1, mine}}, finish));
  }
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const Range input{BufferId::kInput, 0, shape.count};
  const auto place = [&](int s) { return part(BufferId::kOutput, s, shape.count); };
  out.steps.push_back(Step::copy(place(shape.rank), input));
  // Sent from the input: it need not wait for the copy.
  if (shape.size > 1) gather(shape, input, place, out);
  return out;
}

Schedule build(Collective kind, const Shape& shape) {
  switch (kind) {
    case Collective::kAllreduce:
      return allreduce(shape);
    case Collective::kReduceScatter:
      return reduce_scatter(shape);
    case Collective::kAllgather:
      return allgather(shape);
    default:
      unsupported("ring", kind);
  }
}

constexpr std::array kCollectives{Collective::kAllreduce, Collective::kReduceScatter,
                                  Collective::kAllgather};

}  // namespace

Algorithm ring_algorithm() {
  return {"ring", "neighbours only; fewest bytes on the wire, 2 (size - 1) steps", false,
          kCollectives, build};
}

}  // namespace ringdist
