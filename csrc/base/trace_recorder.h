// What a process has spent its time on, for people to look at.
#pragma once

#include <string>

#include "base/clock.h"

namespace ringdist {

struct TraceSpan {
  std::string track;   // a row: "allreduce.x"
  std::string what;    // "NEGOTIATE_ALLREDUCE"
  std::string detail;  // more, in words; may be empty
  TimePoint begin;
  TimePoint end;  // as begin: a moment
};

// Any thread; brief. What cannot be kept is dropped.
class TraceRecorder {
 public:
  virtual ~TraceRecorder() = default;
  virtual void add(const TraceSpan& span) noexcept = 0;
};

}  // namespace ringdist
