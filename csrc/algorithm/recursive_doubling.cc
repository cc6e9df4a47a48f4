// Recursive doubling: in step k each rank exchanges what it has so far with the rank whose number
// differs in bit k, and both add it up; after log2 steps all have the sum. For small tensors in
// large groups: few steps, and a rank talks to few others. R. Thakur, R. Rabenseifner, W. Gropp:
// "Optimization of Collective Communication Operations in MPICH", Int. J. of High Performance
// Computing Applications 19(1), 2005.
//
// Where the size is no power of two, the first ranks go in pairs: the even one of each gives its
// input to the odd one, which stands for both, and has the result back at the end.
//
// Both ranks of an exchange add the same two values in the same order, that of their ranks; so all
// ranks compute the same bits, as reduce() gives wherever it runs (kernel/reduce.h).
#include <algorithm>
#include <array>
#include <bit>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

// Those who take part in the exchanges, a power of two; the first `pairs` stand for two ranks each.
struct Participant {
  explicit Participant(int size)
      : count(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), pairs(size - count) {}
  int rank_of(int place) const { return place < pairs ? 2 * place + 1 : place + pairs; }
  int place_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  bool gives_way(int rank) const { return rank < 2 * pairs && rank % 2 == 0; }

  int count;
  int pairs;
};

Step add(const Range& all, int rank, int peer, bool finish) {
  const Source theirs{peer, all};
  const Source ours{-1, all};
  std::vector<Source> sources{ours, theirs};
  if (peer < rank) sources = {theirs, ours};
  return Step::reduce(all, std::move(sources), finish);
}

Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  const Participant standing(shape.size);
  if (standing.gives_way(shape.rank)) {
    out.steps.push_back(Step::send(all, {shape.rank + 1}, EdgeKind::kContribution));
    out.steps.push_back(Step::recv(all, shape.rank + 1, EdgeKind::kResult));
    return out;
  }
  const int place = standing.place_of(shape.rank);
  const bool stands_for_two = place < standing.pairs;
  if (stands_for_two) out.steps.push_back(add(all, shape.rank, shape.rank - 1, /*finish=*/false));
  for (int bit = 1; bit < standing.count; bit *= 2) {
    const int peer = standing.rank_of(place ^ bit);
    out.steps.push_back(Step::send(all, {peer}, EdgeKind::kContribution));
    out.steps.push_back(add(all, shape.rank, peer, /*finish=*/2 * bit == standing.count));
  }
  if (stands_for_two) out.steps.push_back(Step::send(all, {shape.rank - 1}, EdgeKind::kResult));
  return out;
}

// Of the rounds, those in which all exchange inside hosts, and what the busiest line carries in
// each of the others, on average.
struct Exchanges {
  int inside = 0;
  double crossing = 0;
};

// Where ranks lie in runs the first rounds are inside hosts. In large groups only looked for where
// layouts are even.
Exchanges exchanges_of(const CostLayout& at, const Participant& standing, int rounds) {
  constexpr int kLooked = 64;
  if (!at.spans()) return {rounds};
  if (at.size > kLooked) {
    const bool even = at.least == at.most && standing.pairs == 0 && at.crossings == at.hosts;
    return {even ? std::countr_zero(static_cast<unsigned>(at.least)) : 0,
            static_cast<double>(at.most) * standing.count / at.size};
  }
  Exchanges out;
  for (int bit = 1; bit < standing.count; bit *= 2) {
    std::array<int, kLooked> lines{};  // by host
    for (int place = 0; place < standing.count; ++place) {
      const int rank = standing.rank_of(place);
      if (at.same_host(rank, standing.rank_of(place ^ bit))) continue;
      ++lines[static_cast<size_t>(at.topology->host_of[static_cast<size_t>(rank)])];
    }
    const int most = *std::ranges::max_element(lines);
    out.inside += most == 0;
    out.crossing += most;
  }
  if (out.inside < rounds) out.crossing /= rounds - out.inside;
  return out;
}

Duration cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const Participant standing(at.size);
  const int rounds = std::countr_zero(static_cast<unsigned>(standing.count));
  const auto [inside, crossing] = exchanges_of(at, standing, rounds);
  OpCost sum(question);
  if (standing.pairs > 0) {
    const bool apart = at.spans() && (at.most == 1 || at.crossings > at.hosts);
    TransferCost pair(question, question.bytes);
    pair.send(!apart, 1).receive(!apart, 1).cross(apart ? 1 : 0);
    sum.load(pair).pass_on(2 * pair.hop(!apart)).add(question.bytes);
  }
  if (inside > 0) {
    TransferCost near(question, question.bytes);
    near.send(true, 1, (1 + kStoredCopy * (inside - 1)) / inside).receive(true, 1).share(at.most);
    sum.then(near, inside);
  }
  if (inside < rounds) {
    TransferCost far(question, question.bytes);
    far.send(false, 1).receive(false, 1).cross(crossing);
    sum.then(far, rounds - inside);
  }
  return sum.add(rounds * question.bytes).total();
}

constexpr std::array kImpls{CollectiveImpl{Collective::kAllreduce, allreduce, whole}};

}  // namespace

Algorithm recursive_doubling_algorithm() {
  return {.name = "recursive_doubling",
          .description = "exchanges with ranks 1, 2, 4, ... away; whole tensors, log2(size) steps",
          .rank_ordered = false,
          .serves_codecs = false,
          .impls = kImpls,
          .cost = cost};
}

}  // namespace ringdist
