#include "plan/compiled_schedule.h"

#include <algorithm>
#include <utility>

namespace ringdist {
namespace {

struct Access {
  Range range;
  bool write;
};

// What a step touches. All ranges of a step have the same count, so that element e of one
// corresponds to element e of the others.
std::vector<Access> accesses(const Step& step) {
  std::vector<Access> out;
  out.push_back({step.range, step.kind != StepKind::kSend});
  if (step.kind == StepKind::kReduce || step.kind == StepKind::kCopy)
    for (const auto& source : step.sources)
      if (source.peer < 0) out.push_back({source.range, false});
  return out;
}

// Overwriting what a send still reads needs the send finished; reading what was written does not.
void add_dependencies(std::vector<CompiledStep>& steps, size_t i) {
  for (size_t j = 0; j < i; ++j) {
    for (const Access& mine : accesses(steps[i].step)) {
      for (const Access& other : accesses(steps[j].step)) {
        if (!(mine.write || other.write) || !overlaps(mine.range, other.range)) continue;
        steps[i].after.push_back({static_cast<int>(j), mine.write,
                                  mine.range.offset - other.range.offset, other.range.count});
        if (std::find(steps[j].before.begin(), steps[j].before.end(), static_cast<int>(i)) ==
            steps[j].before.end())
          steps[j].before.push_back(static_cast<int>(i));
      }
    }
  }
}

// The step that has, encoded, what send `i` is to send; see CompiledStep::producer.
void find_producer(std::vector<CompiledStep>& steps, size_t i) {
  if (steps[i].step.kind != StepKind::kSend) return;
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

// The i-th send of a to b meets the i-th receive of b from a.
class EdgeCounter {
 public:
  uint32_t next(int peer) { return counts_[peer]++; }

 private:
  std::map<int, uint32_t> counts_;
};

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
  for (Step& step : schedule.steps) {
    CompiledStep compiled;
    compiled.step = std::move(step);
    // An edge carries at least one message, so that ranks with nothing to move still meet.
    const int64_t count = compiled.step.range.count;
    compiled.segments = std::max<int64_t>(1, (count + segment_count - 1) / segment_count);
    number_edges(compiled, sends, receives);
    const int index = static_cast<int>(out->steps.size());
    const auto record = [index](const std::vector<EdgeName>& edges, auto& ends) {
      for (size_t slot = 0; slot < edges.size(); ++slot)
        ends[{edges[slot].peer, edges[slot].edge}] = {index, static_cast<int>(slot)};
    };
    record(compiled.in, out->inbound);
    record(compiled.out, out->outbound);
    out->steps.push_back(std::move(compiled));
    add_dependencies(out->steps, out->steps.size() - 1);
    find_producer(out->steps, out->steps.size() - 1);
  }
  return out;
}

}  // namespace ringdist
