// One-shot: every rank sends its whole input to all others and reduces all inputs itself, in rank
// order. That is one step instead of two, for (size - 1) times the bytes, and suits tensors so
// small that only steps cost time. All ranks compute the same bits because reduce() gives the same
// bits wherever it runs (kernel/reduce.h).
//
// Also called allreduce by allgather; see R. Thakur, R. Rabenseifner, W. Gropp: "Optimization of
// Collective Communication Operations in MPICH", Int. J. of High Performance Computing Applications
// 19(1), 2005.
#include <algorithm>
#include <array>

#include "algorithm/cost.h"
#include "algorithm/schedule.h"
#include "algorithm/schedule_helpers.h"

namespace ringdist {
namespace {

Schedule allreduce(const Shape& shape) {
  Schedule out;
  if (shape.size == 1) return out;
  const Range all{BufferId::kOutput, 0, shape.count};
  out.steps.push_back(Step::send(all, peers_after(shape), EdgeKind::kContribution));
  out.steps.push_back(reduce_in_rank_order(shape, all, all));
  return out;
}

// Predicts the cost at the rank with most peers on other hosts.
Duration cost(const CostQuery& question) {
  const CostLayout& at = question.layout;
  if (at.size == 1) return Duration(0);
  const double elsewhere = at.elsewhere(at.least);
  const double here = at.least - 1;
  TransferCost all(question, question.bytes);
  all.send(true, here, std::min(1.0, here)).receive(true, here);
  all.share(at.most * (at.most - 1.0));
  all.send(false, elsewhere).receive(false, elsewhere).cross(at.crowd);
  return OpCost(question).then(all).add((at.size - 1) * question.bytes).total();
}

constexpr std::array kImpls{
    CollectiveImpl{Collective::kAllreduce, allreduce, whole, {.for_small_groups = true}}};

}  // namespace

Algorithm one_shot_algorithm() {
  return {.name = "one_shot",
          .description = "all to all, whole tensors; rank order, one rounding, 1 step",
          .rank_ordered = true,
          .serves_codecs = false,
          .impls = kImpls,
          .only_for_small_groups = true,
          .cost = cost};
}

}  // namespace ringdist
