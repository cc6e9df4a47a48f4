// Direct: everybody talks to everybody, in one step per phase. The owner of a shard reduces all
// contributions at once in rank order, so an element's bits depend on the inputs alone, and half
// precision rounds once. Known as the direct-exchange or pairwise reduce-scatter; see R. Thakur,
// R. Rabenseifner, W. Gropp: "Optimization of Collective Communication Operations in MPICH",
// Int. J. of High Performance Computing Applications 19(1), 2005.
#include <array>

#include "algorithm/ranges.h"
#include "algorithm/schedule.h"

namespace ringdist {
namespace {

// All other ranks, beginning with the next: not all ranks start with the same peer.
std::vector<int> peers_after(const Shape& shape) {
  std::vector<int> out;
  for (int k = 1; k < shape.size; ++k) out.push_back(wrap(shape.rank + k, shape.size));
  return out;
}

// Sends contributions to their owners, reduces the own shard. `contribution(s)` is this rank's part
// of shard s.
template <typename Contribution>
void exchange_and_reduce(const Shape& shape, Range result, Contribution contribution,
                         Schedule& out) {
  for (int peer : peers_after(shape))
    out.steps.push_back(Step::send(contribution(peer), {peer}, EdgeMark::kContribution));
  std::vector<Source> sources;
  for (int r = 0; r < shape.size; ++r)
    sources.push_back(r == shape.rank ? Source{-1, contribution(r)} : Source{r, result});
  out.steps.push_back(Step::reduce(result, std::move(sources), /*finish=*/true));
}

// Sends `own` to all; `place(s)` is where the part of rank s goes.
template <typename Place>
void gather(const Shape& shape, Range own, Place place, Schedule& out) {
  const std::vector<int> peers = peers_after(shape);
  out.steps.push_back(Step::send(own, peers, EdgeMark::kResult));
  for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer)
    out.steps.push_back(Step::recv(place(*peer), *peer, EdgeMark::kResult));
}

Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const std::vector<int64_t> bounds = shards_of(shape);
  const auto place = [&](int s) { return output_shard(bounds, s); };
  exchange_and_reduce(shape, place(shape.rank), place, out);
  gather(shape, place(shape.rank), place, out);
  return out;
}

Schedule reduce_scatter(const Shape& shape) {
  Schedule out;
  const Range result{BufferId::kOutput, 0, shape.count};
  const auto mine = [&](int s) { return part(BufferId::kInput, s, shape.count); };
  if (shape.size == 1)
    out.steps.push_back(Step::copy(result, mine(0)));
  else
    exchange_and_reduce(shape, result, mine, out);
  return out;
}

Schedule allgather(const Shape& shape) {
  Schedule out;
  const Range input{BufferId::kInput, 0, shape.count};
  const auto place = [&](int s) { return part(BufferId::kOutput, s, shape.count); };
  out.steps.push_back(Step::copy(place(shape.rank), input));
  if (shape.size > 1) gather(shape, input, place, out);
  return out;
}

Schedule broadcast(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  if (shape.rank == shape.root)
    out.steps.push_back(Step::send(all, peers_after(shape), EdgeMark::kResult));
  else
    out.steps.push_back(Step::recv(all, shape.root, EdgeMark::kResult));
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
    case Collective::kBroadcast:
      return broadcast(shape);
    default:
      unsupported("direct", kind);
  }
}

constexpr std::array kCollectives{Collective::kAllreduce, Collective::kReduceScatter,
                                  Collective::kAllgather, Collective::kBroadcast};

}  // namespace

Algorithm direct_algorithm() {
  return {"direct", "all to all; rank order, one rounding, 2 steps", true, kCollectives, build};
}

}  // namespace ringdist
