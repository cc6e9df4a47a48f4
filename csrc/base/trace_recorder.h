// Interface for timelines: records the spans of time that a process spent on something, for people
// to look at.
#pragma once

#include <string>

#include "base/clock.h"

namespace ringdist {

// One event of a timeline.
struct TraceSpan {
  std::string track;   // row of the timeline: "allreduce.x"
  std::string what;    // "NEGOTIATE_ALLREDUCE"
  std::string detail;  // further text; may be empty
  TimePoint begin;
  TimePoint end;  // equal to `begin` for a moment
};

// Receives spans. add() may be called by any thread and returns quickly; a span that cannot be kept
// is dropped.
class TraceRecorder {
 public:
  virtual ~TraceRecorder() = default;
  virtual void add(const TraceSpan& span) noexcept = 0;
};

}  // namespace ringdist
