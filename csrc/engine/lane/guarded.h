// What runs on a lane may throw, and must end no process.
#pragma once

#include "base/thrown.h"

namespace ringdist {

// Runs it. What it throws (there is no memory, say) ends all groups, for nobody knows which one it
// was about. `executor`: the Executor, which uses this, too.
template <typename Groups, typename Body>
bool guarded(Groups& executor, Body&& body) {
  try {
    return body();
  } catch (...) {
    executor.fail_all(thrown_error());
    return true;
  }
}

}  // namespace ringdist
