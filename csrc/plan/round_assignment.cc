#include "plan/round_assignment.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace ringdist {

RoundAssignment::RoundAssignment(std::vector<std::shared_ptr<const CompiledSchedule>> ranks,
                                 int size, SendMode messages)
    : ranks_(std::move(ranks)), size_(size), messages_(messages) {
  for (const auto& rank : ranks_) {
    first_.push_back(static_cast<int>(round_.size()));
    round_.resize(round_.size() + rank->steps.size());
  }
  waits_.resize(round_.size());
  work_out();
}

int RoundAssignment::waits_of(const CompiledStep& step) const {
  const size_t turns = takes_turns() ? step.step.follows.size() : 0;
  return static_cast<int>(step.after.size() + turns + step.in.size());
}

void RoundAssignment::work_out() {
  for (int rank = 0; rank < alike(); ++rank)
    for (int step = 0; step < static_cast<int>(steps(rank).size()); ++step) {
      int& waits = waits_[at(rank, step)];
      waits = waits_of(steps(rank)[static_cast<size_t>(step)]);
      if (waits == 0) ready_.emplace_back(rank, step);
    }
  for (size_t next = 0; next < ready_.size(); ++next) {
    const auto [rank, step] = ready_[next];
    tell_later(rank, step);
    tell_peers(rank, step);
  }
  check(ready_.size() == round_.size(), "a schedule that does not end");
}

void RoundAssignment::tell_later(int rank, int step) {
  const CompiledStep& one = steps(rank)[static_cast<size_t>(step)];
  const int round = of(rank, step);
  const bool sends = !one.step.to.empty();
  for (const int later : one.before) {
    const CompiledStep& what = steps(rank)[static_cast<size_t>(later)];
    size_t times = 0;
    int reached = round;
    for (const Dependency& dependency : what.after) {
      if (dependency.on != step) continue;
      ++times;
      if (dependency.finished && sends && !takes_turns()) reached = round + 1;
    }
    // A step that follows this one by Step::follows runs after the message that this step sends. If
    // this step receives, its round already is the later one.
    const auto turns =
        takes_turns() ? static_cast<size_t>(std::ranges::count(what.step.follows, step)) : 0;
    if (turns > 0 && sends) reached = round + 1;
    let_go(rank, later, reached, times + turns);
  }
}

void RoundAssignment::tell_peers(int rank, int step) {
  for (const EdgeId& edge : steps(rank)[static_cast<size_t>(step)].out) {
    const auto [to, from] = seen(edge.peer, rank);
    const auto& inbound = ranks_[static_cast<size_t>(to)]->inbound;
    const auto end = inbound.find({from, edge.edge});
    check(end != inbound.end(), "a send that no rank receives");
    let_go(to, end->second.step, of(rank, step) + 1, 1);
  }
}

void RoundAssignment::let_go(int rank, int step, int reached, size_t times) {
  if (times == 0) return;  // only Step::follows relates the steps, and it is ignored
  int& round = round_[at(rank, step)];
  round = std::max(round, reached);
  int& waits = waits_[at(rank, step)];
  waits -= static_cast<int>(times);
  if (waits == 0) ready_.emplace_back(rank, step);
}

// Returns the rank that stands for `whose`, and the peer at the same distance from it.
RoundAssignment::Seen RoundAssignment::seen(int whose, int peer) const {
  const int stands = whose % alike();
  return {stands, (peer + stands - whose + size_) % size_};
}

int RoundAssignment::of_message(int rank, const EdgeId& in) const {
  const auto [from, to] = seen(in.peer, rank);
  const auto& outbound = ranks_[static_cast<size_t>(from)]->outbound;
  const auto end = outbound.find({to, in.edge});
  check(end != outbound.end(), "a message that no rank sends");
  return of(from, end->second.step);
}

}  // namespace ringdist
