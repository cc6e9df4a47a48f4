// Dissemination barrier. In round k every rank sends to the rank 2^k further and receives from the
// rank 2^k back. After ceil(log2(size)) rounds each has been reached, directly or not, by all. D.
// Hensgen, R. Finkel, U. Manber: "Two Algorithms for Barrier Synchronization", International
// Journal of Parallel Programming 17(1), 1988.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

Schedule barrier(const Shape& shape) {
  Schedule out;
  // A round's message must not leave before those of all earlier rounds have come. Order is by data
  // dependence on ranges, and empty ranges have none, so all rounds share one element of scratch.
  const Range signal{BufferId::kScratch, 0, 1};
  for (int64_t hop = 1; hop < shape.size; hop *= 2) {
    const int distance = static_cast<int>(hop);
    const int to = wrap(shape.rank + distance, shape.size);
    const int from = wrap(shape.rank - distance, shape.size);
    out.scratch_count = 1;
    out.steps.push_back(Step::send(signal, {to}, EdgeKind::kContribution));
    out.steps.push_back(Step::recv(signal, from, EdgeKind::kContribution));
  }
  return out;
}

// The longest path through all rounds crosses between hosts about as often as it takes to reach the
// last host.
Duration cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(at.size) - 1));
  const int far =
      at.spans()
          ? std::min(rounds,
                     static_cast<int>(std::bit_width(static_cast<unsigned>(at.hosts) - 1)) + 1)
          : 0;
  TransferCost signal(question, 1);
  TransferCost other = signal;
  signal.send(true, 1).receive(true, 1);
  other.send(false, 1).receive(false, 1).cross(1);
  return OpCost(question).then(signal, rounds - far).then(other, far).total();
}

// The barrier's messages have one element, whatever the count of the op.
int64_t one_element(int64_t, int) { return 1; }

constexpr std::array kImpls{
    CollectiveImpl{Collective::kBarrier, barrier, one_element, {.best = true}}};

}  // namespace

Algorithm dissemination_algorithm() {
  return {.name = "dissemination",
          .description = "barrier in ceil(log2(size)) rounds",
          .rank_ordered = false,
          .impls = kImpls,
          .cost = cost};
}

}  // namespace ringdist
