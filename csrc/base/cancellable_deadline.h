// Deadline of a wait for other ranks. Any thread may move it to an earlier time, or cancel the
// wait.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace ringdist {

struct CancellableDeadline {
  CancellableDeadline(TimePoint until) : time(until) {}
  // Moves the deadline to `until`, unless it is earlier already.
  void shorten(TimePoint until) {
    TimePoint now = time;
    while (until < now && !time.compare_exchange_weak(now, until)) {
    }
  }
  bool expired(TimePoint now) const { return now >= time.load(); }
  bool expired_or_cancelled(TimePoint now) const { return cancelled || expired(now); }

  std::atomic<TimePoint> time;
  std::atomic<bool> cancelled{false};
};

}  // namespace ringdist
