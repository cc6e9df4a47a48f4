// A thread while it drives a lane.
#pragma once

#include "base/float_mode.h"

namespace ringdist {

// From here to the end of the scope the calling thread drives.
class Driver {
 public:
  Driver();
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

 private:
  const bool before_;
  const FloatMode mode_;
};

// Whether the calling thread drives a lane, and so may not wait for the GIL.
bool drives_a_lane();

}  // namespace ringdist
