// How long to wait for others; any thread may shorten it meanwhile, or call the whole thing off.
#pragma once

#include <atomic>

#include "base/clock.h"

namespace ringdist {

struct CancellableDeadline {
  CancellableDeadline(TimePoint until) : deadline(until) {}
  // Never longer, whoever else says how long.
  void shorten(TimePoint until) {
    TimePoint now = deadline;
    while (until < now && !deadline.compare_exchange_weak(now, until)) {
    }
  }
  bool expired(TimePoint now) const { return now >= deadline.load(); }
  bool over(TimePoint now) const { return cancelled || expired(now); }

  std::atomic<TimePoint> deadline;
  std::atomic<bool> cancelled{false};
};

}  // namespace ringdist
