// A thread while it drives a lane.
#pragma once

#include "base/scoped_float_mode.h"

namespace ringdist {

// From here to the end of the scope the calling thread drives.
class InProgressScope {
 public:
  InProgressScope();
  ~InProgressScope();
  InProgressScope(const InProgressScope&) = delete;
  InProgressScope& operator=(const InProgressScope&) = delete;

 private:
  const bool before_;
  const ScopedFloatMode mode_;
};

// Whether the calling thread drives a lane, and so may not wait for the GIL.
bool in_progress_loop();

}  // namespace ringdist
