// A schedule that is ready for execution on one rank, by OpExecution or a simulation. Its steps are
// cut into segments, its edges are numbered, and each step lists the earlier steps that it must
// follow. It is immutable and shared by all ops of the same plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "algorithm/schedule.h"

namespace ringdist {

// Dependency of a step on the earlier step `on`, which must have processed the same elements before
// a segment of this step may run. Both ranges lie in one buffer. Element e of this step is element
// e + shift of the other step's range.
struct Dependency {
  int on;
  bool finished;  // also wait for completion of the other's sends, because we overwrite their data
  int64_t shift;
  int64_t limit;  // number of elements of the other step's range
};

// Names an edge on one rank: the number `edge` counts the messages of one direction with `peer`.
struct EdgeId {
  int peer;
  uint32_t edge;
};

// A step with its edges and its dependencies.
struct CompiledStep {
  Step step;
  int64_t segments = 1;           // at least 1, also for an empty range
  std::vector<Dependency> after;  // on earlier steps; one step may occur several times
  std::vector<int> before;        // steps that wait for this one, or follow it (Step::follows)
  std::vector<EdgeId> out;        // one per element of `to`
  std::vector<EdgeId> in;         // one per receiving source; recv and relay have one
  std::vector<int> source_of_in;  // reduce: index into step.sources of each `in`
  // If edges have codecs, a reduce (or an allgather's copy) also encodes its result, and the send
  // that follows uses those bytes. So values are encoded once. `producer` is the encoding step of a
  // send, `consumer` the send of an encoding step, and -1 stands for none.
  int producer = -1;
  int consumer = -1;
};

// An end of an edge on this rank.
struct EdgeEnd {
  int step;
  int slot;  // index into that step's `in` or `out`
};

// All steps of one rank. Segment k of a step is [segment_begin(k), segment_end(step, k)) of each of
// its ranges.
struct CompiledSchedule {
  std::vector<CompiledStep> steps;
  int64_t segment_count = 1;  // elements of a full segment
  int64_t scratch_count = 0;  // elements
  // Ends of the edges on this rank, by other rank and number of the edge.
  std::map<std::pair<int, uint32_t>, EdgeEnd> inbound;
  std::map<std::pair<int, uint32_t>, EdgeEnd> outbound;

  int64_t segment_begin(int64_t segment) const { return segment * segment_count; }
  int64_t segment_end(const CompiledStep& step, int64_t segment) const;
  // Returns the elements of a segment of step number `step` in `range`, which is one of the step's.
  Range slice(int step, const Range& range, int64_t segment) const;
};

// Compiles a schedule with segments of at most `segment_count` >= 1 elements. Edges are numbered
// per peer and direction in schedule order, so both ends get the same number. Pure; any thread.
std::shared_ptr<const CompiledSchedule> compile(Schedule schedule, int64_t segment_count);

}  // namespace ringdist
