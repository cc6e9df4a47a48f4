#include "cuda/stream/exchanges.h"

#include <algorithm>

namespace ringdist::gpu {
namespace {

// The round in which all that the step depends on has been done.
int free_in(const RoundAssignment& walk, int rank, int step) {
  int round = 0;
  for (const Dependency& dependency : walk.steps(rank)[static_cast<size_t>(step)].after) {
    const CompiledStep& on = walk.steps(rank)[static_cast<size_t>(dependency.on)];
    const bool leaves = dependency.finished && !on.out.empty();
    round = std::max(round, walk.of(rank, dependency.on) + (leaves ? 1 : 0));
  }
  return round;
}

}  // namespace

std::vector<Exchange> exchanges_of(const RoundAssignment& walk, int rank) {
  std::vector<Exchange> out;
  const auto exchange = [&](int round) -> Exchange& {
    const auto at = static_cast<size_t>(round);
    if (out.size() <= at) out.resize(at + 1);
    return out[at];
  };
  const auto& steps = walk.steps(rank);
  for (int step = 0; step < static_cast<int>(steps.size()); ++step) {
    const CompiledStep& one = steps[static_cast<size_t>(step)];
    const int round = walk.of(rank, step);
    exchange(round).steps.push_back(step);
    for (size_t slot = 0; slot < one.out.size(); ++slot)
      exchange(round).sends.push_back({step, static_cast<int>(slot)});
    const bool reduces = one.step.kind == StepKind::kReduce;
    const int free = free_in(walk, rank, step);
    for (size_t slot = 0; slot < one.in.size(); ++slot) {
      const int comes = walk.of_message(rank, one.in[slot]);
      exchange(comes).receives.push_back({step, static_cast<int>(slot), !reduces && free <= comes});
    }
  }
  return out;
}

}  // namespace ringdist::gpu
