// When the control plane looks at everything: at each heartbeat, sooner where something waits, at
// once where something has happened. The time is an argument.
#pragma once

#include <algorithm>
#include <optional>

#include "base/clock.h"

namespace ringdist {

class ControlPace {
 public:
  explicit ControlPace(TimePoint now) : now_(now) {}

  // How much later it is than was meant.
  Duration begin_turn(TimePoint now) {
    const Duration late = now - now_ - sleep();
    now_ = now;
    return late;
  }
  TimePoint now() const { return now_; }
  Duration sleep() const {
    return next_ ? std::max<Duration>(*next_ - now_, Duration(0)) : Duration(0);
  }

  bool due() const { return !next_ || now_ >= *next_; }
  // The next tick; hurry() may bring it forward, in this tick, too.
  void set(Duration interval) { next_ = now_ + interval; }
  void at_most(Duration interval) {
    if (next_) next_ = std::min(*next_, now_ + interval);
  }
  void hurry() { next_.reset(); }

 private:
  TimePoint now_;
  std::optional<TimePoint> next_;  // nothing: at once
};

}  // namespace ringdist
