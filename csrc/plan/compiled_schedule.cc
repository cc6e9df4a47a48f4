#include "plan/compiled_schedule.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

struct Access {
  Range range;
  bool write;
};

// Returns the ranges that a step reads or writes. All ranges of a step have the same count, so
// element e of one corresponds to element e of the others.
std::vector<Access> accesses(const Step& step) {
  std::vector<Access> out;
  out.push_back({step.range, step.kind != StepKind::kSend});
  if (step.kind == StepKind::kReduce || step.kind == StepKind::kCopy)
    for (const auto& source : step.sources)
      if (source.peer < 0) out.push_back({source.range, false});
  return out;
}

// Finds dependencies between steps. It keeps the accesses of all steps so far, sorted by offset. An
// access is removed when a later step overwrites all of it, because steps after that one then also
// follow the removed one. So the work grows with the overlaps, not with the square of the steps.
class Touched {
 public:
  explicit Touched(std::vector<CompiledStep>& steps) : steps_(steps) {}

  // Adds the dependencies of the last step.
  void add_last() {
    const size_t i = steps_.size() - 1;
    accesses_.push_back(accesses(steps_[i].step));
    const std::vector<Access>& mine = accesses_.back();
    for (const int j : steps_that_overlap(mine)) depend(i, static_cast<size_t>(j));
    for (const Access& access : mine) enter(static_cast<int>(i), access);
  }

 private:
  struct Use {
    int step;
    int64_t end;
  };
  struct Places {
    std::multimap<int64_t, Use> at;  // by offset
    int64_t longest = 0;
  };

  Places& places(BufferId buffer) { return places_[static_cast<size_t>(buffer)]; }

  // Returns the earlier steps with an access that overlaps one of these, ascending. No access is
  // longer than `longest`, so the search begins that far before each offset.
  std::vector<int> steps_that_overlap(const std::vector<Access>& mine) {
    std::vector<int> out;
    for (const Access& access : mine) {
      const Places& there = places(access.range.buffer);
      auto it = there.at.lower_bound(access.range.offset - there.longest);
      for (; it != there.at.end() && it->first < access.range.end(); ++it)
        if (it->second.end > access.range.offset) out.push_back(it->second.step);
    }
    std::ranges::sort(out);
    out.erase(std::unique(out.begin(), out.end()), out.end());
    return out;
  }

  // Makes step i depend on step j if they share a range that one of them writes. If i writes, sends
  // of j must have completed, because they may still read the memory. The list `before` has no
  // duplicates, because i is the last step so far.
  void depend(size_t i, size_t j) {
    for (const Access& mine : accesses_[i]) {
      for (const Access& other : accesses_[j]) {
        if (!(mine.write || other.write) || !overlaps(mine.range, other.range)) continue;
        steps_[i].after.push_back({static_cast<int>(j), mine.write,
                                   mine.range.offset - other.range.offset, other.range.count});
        auto& before = steps_[j].before;
        if (before.empty() || before.back() != static_cast<int>(i))
          before.push_back(static_cast<int>(i));
      }
    }
  }

  // Adds an access, and removes those of other steps that it overwrites entirely.
  void enter(int step, const Access& access) {
    Places& there = places(access.range.buffer);
    const Range& range = access.range;
    if (access.write) {
      auto it = there.at.lower_bound(range.offset);
      while (it != there.at.end() && it->first < range.end())
        it = it->second.end <= range.end() && it->second.step != step ? there.at.erase(it)
                                                                      : std::next(it);
    }
    there.at.emplace(range.offset, Use{step, range.end()});
    there.longest = std::max(there.longest, range.count);
  }

  std::vector<CompiledStep>& steps_;
  std::vector<std::vector<Access>> accesses_;  // per step
  std::array<Places, 3> places_;               // per buffer
};

// Finds the step that encodes the values of send `i`, if there is one; see CompiledStep::producer.
void find_producer(std::vector<CompiledStep>& steps, size_t i) {
  if (steps[i].step.kind != StepKind::kSend) return;
  if (steps[i].step.range.count == 0) return;  // empty ranges of unrelated steps may be equal
  for (size_t j = i; j-- > 0;) {
    const Step& other = steps[j].step;
    const bool reduced = other.kind == StepKind::kReduce && other.range == steps[i].step.range;
    const bool copied =
        other.kind == StepKind::kCopy && other.sources[0].range == steps[i].step.range;
    if (!reduced && !copied) continue;
    steps[i].producer = static_cast<int>(j);
    steps[j].consumer = static_cast<int>(i);
    return;
  }
}

// Makes send `i` wait for the steps of Step::follows.
void add_turn(std::vector<CompiledStep>& steps, int i) {
  for (const int before : steps[static_cast<size_t>(i)].step.follows) {
    check(before < i, "a turn after a later step");
    std::vector<int>& waiting = steps[static_cast<size_t>(before)].before;
    if (waiting.empty() || waiting.back() != i) waiting.push_back(i);
  }
}

// Numbers edges per peer: the i-th send of a to b meets the i-th receive of b from a.
class EdgeCounter {
 public:
  uint32_t next(int peer) { return counts_[peer]++; }

 private:
  std::map<int, uint32_t> counts_;
};

// Numbers the edges of a step. A local operand of a reduce has no edge, so `source_of_in` maps the
// others back to the sources.
void number_edges(CompiledStep& compiled, EdgeCounter& sends, EdgeCounter& receives) {
  const Step& step = compiled.step;
  for (int peer : step.to) compiled.out.push_back({peer, sends.next(peer)});
  if (step.kind == StepKind::kRecv || step.kind == StepKind::kRelay)
    compiled.in.push_back({step.from, receives.next(step.from)});
  if (step.kind != StepKind::kReduce) return;
  for (size_t s = 0; s < step.sources.size(); ++s) {
    const int peer = step.sources[s].peer;
    if (peer < 0) continue;
    compiled.in.push_back({peer, receives.next(peer)});
    compiled.source_of_in.push_back(static_cast<int>(s));
  }
}

}  // namespace

int64_t CompiledSchedule::segment_end(const CompiledStep& step, int64_t segment) const {
  return std::min(step.step.range.count, (segment + 1) * segment_count);
}

Range CompiledSchedule::slice(int step, const Range& range, int64_t segment) const {
  const int64_t begin = segment_begin(segment);
  const auto at = static_cast<size_t>(step);
  return {range.buffer, range.offset + begin, segment_end(steps[at], segment) - begin};
}

std::shared_ptr<const CompiledSchedule> compile(Schedule schedule, int64_t segment_count) {
  auto out = std::make_shared<CompiledSchedule>();
  out->segment_count = segment_count;
  out->scratch_count = schedule.scratch_count;
  EdgeCounter sends;
  EdgeCounter receives;
  out->steps.reserve(schedule.steps.size());
  Touched touched(out->steps);
  for (Step& step : schedule.steps) {
    CompiledStep compiled;
    compiled.step = std::move(step);
    // An edge carries at least one message, so that ranks with nothing to move still meet.
    const int64_t count = compiled.step.range.count;
    compiled.segments = std::max<int64_t>(1, (count + segment_count - 1) / segment_count);
    number_edges(compiled, sends, receives);
    const int index = static_cast<int>(out->steps.size());
    const auto record = [index](const std::vector<EdgeId>& edges, auto& ends) {
      for (size_t slot = 0; slot < edges.size(); ++slot)
        ends[{edges[slot].peer, edges[slot].edge}] = {index, static_cast<int>(slot)};
    };
    record(compiled.in, out->inbound);
    record(compiled.out, out->outbound);
    out->steps.push_back(std::move(compiled));
    touched.add_last();
    find_producer(out->steps, out->steps.size() - 1);
    add_turn(out->steps, index);
  }
  return out;
}

}  // namespace ringdist
