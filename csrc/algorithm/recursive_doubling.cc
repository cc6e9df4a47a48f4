// Recursive doubling. In step k each rank exchanges its partial sum with the rank that differs from
// it in bit k, and both add the two. After log2(size) steps all have the sum. This suits small
// tensors in large groups, because there are few steps and each rank has few peers.
//
// R. Thakur, R. Rabenseifner, W. Gropp: "Optimization of Collective Communication Operations in
// MPICH", Int. J. of High Performance Computing Applications 19(1), 2005.
//
// If the size is no power of two, the first ranks form pairs. The even rank of a pair sends its
// input to the odd one, which takes part for both and returns the result at the end.
//
// Both ranks of an exchange add the same two values in the order of their ranks. So all ranks
// compute the same bits, because reduce() gives the same bits wherever it runs (kernel/reduce.h).
#include <algorithm>
#include <array>
#include <bit>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

// The participants of the exchanges, a power of two of them. The first `pairs` participants stand
// for two ranks each.
struct Participant {
  explicit Participant(int size)
      : count(static_cast<int>(std::bit_floor(static_cast<unsigned>(size)))), pairs(size - count) {}
  // Returns the rank of a participant.
  int rank_of(int place) const { return place < pairs ? 2 * place + 1 : place + pairs; }
  // Returns the participant of a rank.
  int place_of(int rank) const { return rank < 2 * pairs ? rank / 2 : rank - pairs; }
  // Returns true if the rank only sends its input to its partner.
  bool gives_way(int rank) const { return rank < 2 * pairs && rank % 2 == 0; }

  int count;  // participants, the largest power of two that is at most the size
  int pairs;  // ranks beyond `count`, which have a partner each
};

// Makes the reduce of this rank's sum and the peer's, in rank order. `finish` marks the last
// exchange, after which an average is divided.
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
  const Participant participant(shape.size);
  if (participant.gives_way(shape.rank)) {
    out.steps.push_back(Step::send(all, {shape.rank + 1}, EdgeKind::kContribution));
    out.steps.push_back(Step::recv(all, shape.rank + 1, EdgeKind::kResult));
    return out;
  }
  const int place = participant.place_of(shape.rank);
  const bool stands_for_two = place < participant.pairs;
  if (stands_for_two) out.steps.push_back(add(all, shape.rank, shape.rank - 1, /*finish=*/false));
  for (int bit = 1; bit < participant.count; bit *= 2) {
    const int peer = participant.rank_of(place ^ bit);
    out.steps.push_back(Step::send(all, {peer}, EdgeKind::kContribution));
    out.steps.push_back(add(all, shape.rank, peer, /*finish=*/2 * bit == participant.count));
  }
  if (stands_for_two) out.steps.push_back(Step::send(all, {shape.rank - 1}, EdgeKind::kResult));
  return out;
}

// Summary of the exchanges by host. `inside` is the number of rounds in which all exchanges stay
// inside hosts. `crossing` is the average number of messages on the busiest line in the other
// rounds.
struct Exchanges {
  int inside = 0;
  double crossing = 0;
};

// Computes the summary. If ranks are consecutive on hosts, the first rounds stay inside. In groups
// of more than kLooked ranks, only even layouts are recognized.
Exchanges exchanges_of(const CostLayout& at, const Participant& participant, int rounds) {
  constexpr int kLooked = 64;
  if (!at.spans()) return {rounds};
  if (at.size > kLooked) {
    const bool even = at.least == at.most && participant.pairs == 0 && at.crossings == at.hosts;
    return {even ? std::countr_zero(static_cast<unsigned>(at.least)) : 0,
            static_cast<double>(at.most) * participant.count / at.size};
  }
  Exchanges out;
  for (int bit = 1; bit < participant.count; bit *= 2) {
    std::array<int, kLooked> lines{};  // by host
    for (int place = 0; place < participant.count; ++place) {
      const int rank = participant.rank_of(place);
      if (at.same_host(rank, participant.rank_of(place ^ bit))) continue;
      ++lines[static_cast<size_t>(at.topology->host_of[static_cast<size_t>(rank)])];
    }
    const int most = *std::ranges::max_element(lines);
    out.inside += most == 0;
    out.crossing += most;
  }
  if (out.inside < rounds) out.crossing /= rounds - out.inside;
  return out;
}

// The pairs exchange data before and after the rounds. A pair is assumed to be on one host, unless
// ranks are dealt out to hosts in turns.
Duration cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const Participant participant(at.size);
  const int rounds = std::countr_zero(static_cast<unsigned>(participant.count));
  const auto [inside, crossing] = exchanges_of(at, participant, rounds);
  OpCost sum(question);
  if (participant.pairs > 0) {
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
