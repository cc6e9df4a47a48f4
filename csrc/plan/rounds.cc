#include "plan/rounds.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "plan/compiled_schedule.h"
#include "plan/cost_walk.h"
#include "plan/likeness.h"

namespace ringdist {
namespace {

// The steps of all ranks that are looked at, each numbered; and when each can be done: in the round
// of the last message that it waits for.
class Rounds {
 public:
  Rounds(std::vector<std::shared_ptr<const CompiledSchedule>> ranks, int size)
      : ranks_(std::move(ranks)), size_(size) {
    for (const auto& rank : ranks_) {
      first_.push_back(static_cast<int>(round_.size()));
      round_.resize(round_.size() + rank->steps.size());
    }
    waits_.resize(round_.size());
  }

  void work_out() {
    std::vector<std::pair<int, int>> ready;  // rank, step
    for (int rank = 0; rank < alike(); ++rank)
      for (size_t step = 0; step < steps(rank).size(); ++step) {
        const CompiledStep& one = steps(rank)[step];
        int& waits = waits_[at(rank, static_cast<int>(step))];
        waits = static_cast<int>(one.after.size() + one.step.follows.size() + one.in.size());
        if (waits == 0) ready.emplace_back(rank, static_cast<int>(step));
      }
    for (size_t next = 0; next < ready.size(); ++next) {
      const auto [rank, step] = ready[next];
      const CompiledStep& one = steps(rank)[static_cast<size_t>(step)];
      const int round = round_[at(rank, step)];
      const auto let_go = [&](int whose, int waiting, int reached, size_t times) {
        const size_t there = at(whose, waiting);
        round_[there] = std::max(round_[there], reached);
        waits_[there] -= static_cast<int>(times);
        if (waits_[there] == 0) ready.emplace_back(whose, waiting);
      };
      for (const int later : one.before) {
        const CompiledStep& what = steps(rank)[static_cast<size_t>(later)];
        const auto turns = std::ranges::count(what.step.follows, step);
        const auto times = std::ranges::count(what.after, step, &Dependency::on) + turns;
        // A turn comes after the message that this step sends; a receipt is in the next round
        // already.
        const bool sent = turns > 0 && !one.step.to.empty();
        let_go(rank, later, sent ? round + 1 : round, static_cast<size_t>(times));
      }
      // The one that stands for the receiver sees this rank where it would be from there.
      for (const EdgeName& edge : one.out) {
        const int to = edge.peer % alike();
        const int seen = (rank + to - edge.peer + size_) % size_;
        const auto& inbound = ranks_[static_cast<size_t>(to)]->inbound;
        const auto end = inbound.find({seen, edge.edge});
        check(end != inbound.end(), "a send that no rank receives");
        let_go(to, end->second.step, round + 1, 1);
      }
    }
    check(ready.size() == round_.size(), "a schedule that does not end");
  }

  int alike() const { return static_cast<int>(ranks_.size()); }
  const std::vector<CompiledStep>& steps(int rank) const {
    return ranks_[static_cast<size_t>(rank)]->steps;
  }
  // Of the messages that the step sends, from 0.
  int sends_in(int rank, int step) const { return round_[at(rank, step)]; }

 private:
  size_t at(int rank, int step) const {
    return static_cast<size_t>(first_[static_cast<size_t>(rank)] + step);
  }

  const std::vector<std::shared_ptr<const CompiledSchedule>> ranks_;
  const int size_;
  std::vector<int> first_;  // by rank: the number of its first step
  std::vector<int> round_;  // by number
  std::vector<int> waits_;  // by number: for so many steps and messages
};

void add(const Step& step, int from, const Topology& topology, bool shown, int times, Round& out) {
  for (const int to : step.to) {
    const bool inside = topology.same_host(from, to);
    (inside ? out.messages_inside : out.messages_between) += times;
    (inside ? out.elements_inside : out.elements_between) += times * step.range.count;
    if (shown) out.messages.push_back({from, to, step.range.count, step.mark});
  }
}

}  // namespace

Result<std::vector<Round>> rounds_of(const Algorithm& algorithm, Collective kind,
                                     const Shape& shape, const Topology& topology, int shown) {
  check(topology.host_of.size() == static_cast<size_t>(shape.size), "a layout of another size");
  const bool lists = shape.size <= shown;
  const int alike = lists ? shape.size : likeness(algorithm, kind, shape, topology, true);
  std::vector<std::shared_ptr<const CompiledSchedule>> ranks;
  Shape mine = shape;
  mine.topology = topology;
  auto schedules = schedules_to_walk(algorithm, kind, std::move(mine), alike);
  if (!schedules)
    return Error(ErrorKind::kNotSupported,
                 std::to_string(shape.size) + " ranks that are not alike have more than " +
                     std::to_string(kMostWalkedSteps) + " steps to look at");
  for (Schedule& schedule : *schedules) {
    int64_t longest = 1;
    for (const Step& step : schedule.steps) longest = std::max(longest, step.range.count);
    ranks.push_back(compile(std::move(schedule), longest));
  }
  Rounds rounds(std::move(ranks), shape.size);
  rounds.work_out();
  std::vector<Round> out;
  for (int rank = 0; rank < alike; ++rank)
    for (size_t step = 0; step < rounds.steps(rank).size(); ++step) {
      const Step& one = rounds.steps(rank)[step].step;
      if (one.to.empty()) continue;
      const auto round = static_cast<size_t>(rounds.sends_in(rank, static_cast<int>(step)));
      if (out.size() <= round) out.resize(round + 1);
      add(one, rank, topology, lists, shape.size / alike, out[round]);
    }
  return out;
}

}  // namespace ringdist
