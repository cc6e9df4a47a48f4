// A schedule made ready to run on one rank: steps cut into segments, edges numbered, and for each
// step the earlier steps that it must follow. Immutable and shared by all ops of the same plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist {

// Step `on` must have come far enough before a segment of this step may run. Both ranges start
// somewhere in one buffer: this step's element e lies at element e + shift of the other's range.
struct Dependency {
  int on;
  bool finished;  // wait until the other's sends have left, too (we overwrite what it reads)
  int64_t shift;
  int64_t limit;  // elements of the other's range
};

struct EdgeId {
  int peer;
  uint32_t edge;
};

struct CompiledStep {
  Step step;
  int64_t segments = 1;
  std::vector<Dependency> after;
  std::vector<int> before;        // steps that wait for this one, or follow it (Step::follows)
  std::vector<EdgeId> out;        // one per `to`
  std::vector<EdgeId> in;         // one per receiving source: recv and relay have one
  std::vector<int> source_of_in;  // reduce: index into step.sources of each `in`
  // Where edges have codecs, a reduce (or an allgather's copy) encodes what it wrote, and the send
  // that follows takes those bytes: the values are encoded once. -1: none.
  int producer = -1;
  int consumer = -1;
};

// An end of an edge on this rank.
struct EdgeEnd {
  int step;
  int slot;  // index into that step's `in` or `out`
};

struct CompiledSchedule {
  std::vector<CompiledStep> steps;
  int64_t segment_count = 1;  // elements of a full segment
  int64_t scratch_count = 0;
  // (other rank, edge) -> where it ends here
  std::map<std::pair<int, uint32_t>, EdgeEnd> inbound;
  std::map<std::pair<int, uint32_t>, EdgeEnd> outbound;

  int64_t segment_begin(int64_t segment) const { return segment * segment_count; }
  int64_t segment_end(const CompiledStep& step, int64_t segment) const;
  // The elements of a segment in one of its step's ranges.
  Range slice(int step, const Range& range, int64_t segment) const;
};

std::shared_ptr<const CompiledSchedule> compile(Schedule schedule, int64_t segment_count);

}  // namespace ringdist
