// What runs on a lane may throw, and must end no process.
#pragma once

#include "base/current_exception.h"

namespace ringdist {

// Runs it. What it throws (there is no memory, say) ends all groups, for nobody knows which one it
// was about. `dispatcher`: the Executor, which uses this, too.
template <typename Groups, typename Body>
bool fail_all_if_thrown(Groups& dispatcher, Body&& body) {
  try {
    return body();
  } catch (...) {
    dispatcher.fail_all(current_exception_error());
    return true;
  }
}

}  // namespace ringdist
