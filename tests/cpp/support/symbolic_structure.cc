// Structural checks of the symbolic checker, which examine schedules without running them.
#include <algorithm>
#include <map>
#include <set>

#include "support/symbolic.h"

namespace ringdist::symbolic {
namespace {

class StepCheck {
 public:
  StepCheck(const Case& what, const Counts& counts, const Schedule& schedule, int rank,
            size_t position)
      : what_(what),
        counts_(counts),
        schedule_(schedule),
        rank_(rank),
        position_(position),
        step_(schedule.steps[position]) {}

  std::string problem() const {
    const bool sends = step_.kind == StepKind::kSend || step_.kind == StepKind::kRelay;
    const bool receives = step_.kind == StepKind::kRecv || step_.kind == StepKind::kRelay;
    const bool computes = step_.kind == StepKind::kReduce || step_.kind == StepKind::kCopy;
    if (!inside(step_.range)) return "range outside its buffer";
    if (step_.kind != StepKind::kSend && step_.range.buffer == BufferId::kInput)
      return "writes the input";
    if (step_.kind != StepKind::kSend && step_.range.buffer == BufferId::kOutput &&
        what_.kind == Collective::kReduce && rank_ != what_.root)
      return "writes the output of a rank that is not the root";
    if (sends == step_.to.empty()) return "targets missing, or not expected";
    if (std::set(step_.to.begin(), step_.to.end()).size() != step_.to.size())
      return "the same target twice";
    if (!std::all_of(step_.to.begin(), step_.to.end(), [&](int peer) { return is_peer(peer); }))
      return "no such target";
    if (receives ? !is_peer(step_.from) : step_.from != -1) return "source missing or unexpected";
    if (computes == step_.sources.empty()) return "operands missing, or not expected";
    if (step_.finish && step_.kind != StepKind::kReduce) return "finishes without a reduce";
    if (!follows_messages()) return "takes its turn after no message";
    return operands_problem();
  }

 private:
  bool follows_messages() const {
    return std::ranges::all_of(step_.follows, [this](int other) {
      const auto before = static_cast<size_t>(other);
      return step_.kind == StepKind::kSend && before < position_ &&
             (schedule_.steps[before].kind == StepKind::kRecv ||
              schedule_.steps[before].kind == StepKind::kSend);
    });
  }

  bool is_peer(int peer) const { return peer >= 0 && peer < what_.size && peer != rank_; }

  bool inside(const Range& range) const {
    return range.offset >= 0 && range.count >= 0 && range.end() <= buffer_count(range.buffer);
  }

  int64_t buffer_count(BufferId buffer) const {
    switch (buffer) {
      case BufferId::kInput:
        return counts_.input;
      case BufferId::kOutput:
        return counts_.output;
      case BufferId::kScratch:
        break;
    }
    return schedule_.scratch_count;
  }

  std::string operands_problem() const {
    const bool copy = step_.kind == StepKind::kCopy;
    if (copy && (step_.sources.size() != 1 || step_.sources[0].peer >= 0))
      return "a copy has one local source";
    int in_place = 0;
    for (const Source& source : step_.sources) {
      if (source.range.count != step_.range.count) return "operands of different counts";
      if (source.peer >= 0 ? !is_peer(source.peer) : !inside(source.range)) return "bad operand";
      if (source.peer >= 0 || !overlaps(source.range, step_.range)) continue;
      if (copy || source.range != step_.range || ++in_place > 1)
        return "overlaps an operand other than exactly";
    }
    return "";
  }

  const Case& what_;
  const Counts& counts_;
  const Schedule& schedule_;
  int rank_;
  size_t position_;
  const Step& step_;
};

struct End {
  int rank;
  size_t step;
  int64_t count;
  EdgeKind edge_kind;
  bool any_final = false;  // a relay takes final values from the owner and from another relay
};

// Both ends of all messages, in order, by ordered pair of ranks.
struct Pairs {
  std::map<std::pair<int, int>, std::vector<End>> sends;
  std::map<std::pair<int, int>, std::vector<End>> receives;
};

Pairs collect(const std::vector<Schedule>& schedules) {
  Pairs out;
  for (int rank = 0; rank < static_cast<int>(schedules.size()); ++rank) {
    const std::vector<Step>& steps = schedules[rank].steps;
    for (size_t s = 0; s < steps.size(); ++s) {
      const Step& step = steps[s];
      const End end{rank, s, step.range.count, step.edge_kind, step.kind == StepKind::kRelay};
      for (int peer : step.to) out.sends[{rank, peer}].push_back(end);
      if (step.from >= 0) out.receives[{step.from, rank}].push_back(end);
      for (const Source& source : step.sources)
        if (source.peer >= 0)
          out.receives[{source.peer, rank}].push_back(
              {rank, s, step.range.count, source.edge_kind});
    }
  }
  return out;
}

std::string edge_problem(const End& send, const End& receive) {
  const bool fits = receive.any_final
                        ? send.edge_kind == EdgeKind::kResult || send.edge_kind == EdgeKind::kRelay
                        : send.edge_kind == receive.edge_kind;
  if (send.count == receive.count && fits) return "";
  return "rank " + std::to_string(send.rank) + " step " + std::to_string(send.step) + " sends " +
         std::to_string(send.count) + " elements to rank " + std::to_string(receive.rank) +
         " step " + std::to_string(receive.step) + ", which expects " +
         std::to_string(receive.count) + (fits ? "" : " and another mark");
}

std::string pairing_problem(const std::vector<Schedule>& schedules) {
  Pairs pairs = collect(schedules);
  for (const auto& [pair, unused] : pairs.receives)
    pairs.sends[pair];  // creates the pairs that only receive
  for (const auto& [pair, sends] : pairs.sends) {
    const std::vector<End>& receives = pairs.receives[pair];
    if (sends.size() != receives.size())
      return "rank " + std::to_string(pair.first) + " sends " + std::to_string(sends.size()) +
             " messages to rank " + std::to_string(pair.second) + ", which receives " +
             std::to_string(receives.size());
    for (size_t i = 0; i < sends.size(); ++i)
      if (std::string wrong = edge_problem(sends[i], receives[i]); !wrong.empty()) return wrong;
  }
  return "";
}

}  // namespace

std::vector<Schedule> cut(const std::vector<Schedule>& schedules, int64_t segment_count) {
  std::vector<Schedule> out;
  for (const Schedule& schedule : schedules) {
    Schedule& segments = out.emplace_back();
    segments.scratch_count = schedule.scratch_count;
    std::vector<int> last;  // last segment number of each step
    for (const Step& step : schedule.steps) {
      int64_t begin = 0;
      do {
        Step segment = step;
        const auto narrow = [&](Range& range) {
          range.count = std::min(segment_count, range.count - begin);
          range.offset += begin;
        };
        narrow(segment.range);
        for (Source& source : segment.sources) narrow(source.range);
        for (int& before : segment.follows) before = last[static_cast<size_t>(before)];
        segments.steps.push_back(std::move(segment));
        begin += segment_count;
      } while (begin < step.range.count);
      last.push_back(static_cast<int>(segments.steps.size()) - 1);
    }
  }
  return out;
}

std::string structural_problem(const Case& what, const std::vector<Schedule>& schedules) {
  if (static_cast<int>(schedules.size()) != what.size) return "not one schedule per rank";
  for (int rank = 0; rank < what.size; ++rank) {
    const Counts counts = counts_of(what, rank);
    for (size_t s = 0; s < schedules[rank].steps.size(); ++s) {
      const StepCheck check(what, counts, schedules[rank], rank, s);
      if (std::string wrong = check.problem(); !wrong.empty())
        return "rank " + std::to_string(rank) + " step " + std::to_string(s) + ": " + wrong;
    }
  }
  return pairing_problem(schedules);
}

}  // namespace ringdist::symbolic
