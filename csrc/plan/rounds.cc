#include "plan/rounds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/rank_symmetry.h"
#include "plan/round_assignment.h"
#include "plan/simulation.h"

namespace ringdist {
namespace {

void add(const Step& step, int from, const Topology& topology, bool shown, int times, Round& out) {
  for (const int to : step.to) {
    const bool inside = topology.same_host(from, to);
    (inside ? out.messages_inside : out.messages_between) += times;
    (inside ? out.elements_inside : out.elements_between) += times * step.range.count;
    if (shown) out.messages.push_back({from, to, step.range.count, step.edge_kind});
  }
}

}  // namespace

Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown) {
  check(topology.host_of.size() == static_cast<size_t>(shape.size), "a layout of another size");
  const bool lists = shape.size <= shown;
  const int alike = lists ? shape.size : symmetry_period(algorithm, kind, shape, topology, true);
  std::vector<std::shared_ptr<const CompiledSchedule>> ranks;
  Shape mine = shape;
  mine.topology = topology;
  auto schedules = schedules_to_simulate(algorithm, kind, std::move(mine), alike);
  if (!schedules)
    return Error(ErrorKind::kNotSupported,
                 std::to_string(shape.size) + " ranks that are not alike have more than " +
                     std::to_string(kMaxSimulatedSteps) + " steps to look at");
  for (Schedule& schedule : *schedules) {
    int64_t longest = 1;
    for (const Step& step : schedule.steps) longest = std::max(longest, step.range.count);
    ranks.push_back(compile(std::move(schedule), longest));
  }
  const RoundAssignment rounds(std::move(ranks), shape.size, RoundAssignment::SendMode::kKept);
  std::vector<Round> out;
  for (int rank = 0; rank < alike; ++rank)
    for (size_t step = 0; step < rounds.steps(rank).size(); ++step) {
      const Step& one = rounds.steps(rank)[step].step;
      if (one.to.empty()) continue;
      const auto round = static_cast<size_t>(rounds.of(rank, static_cast<int>(step)));
      if (out.size() <= round) out.resize(round + 1);
      add(one, rank, topology, lists, shape.size / alike, out[round]);
    }
  return out;
}

}  // namespace ringdist
