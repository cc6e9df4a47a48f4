// When the control plane looks at everything: at each heartbeat, sooner where something waits, at
// once where something has happened. The time is an argument.
#pragma once

#include <algorithm>

#include "base/clock.h"

namespace ringdist {

class TickTimer {
 public:
  explicit TickTimer(TimePoint now) : now_(now) {}

  // How much later it is than was meant.
  Duration begin_turn(TimePoint now) {
    const Duration late = now - now_ - sleep();
    now_ = now;
    return late;
  }
  TimePoint now() const { return now_; }
  Duration sleep() const { return due() ? Duration(0) : next_ - now_; }

  bool due() const { return hurried_ || now_ >= next_; }
  // The next tick; hurry() may bring it forward, in this tick, too.
  void set(Duration interval) {
    next_ = now_ + interval;
    hurried_ = false;
  }
  void at_most(Duration interval) { next_ = std::min(next_, now_ + interval); }
  void hurry() { hurried_ = true; }

 private:
  TimePoint now_;
  TimePoint next_{};
  bool hurried_ = true;
};

}  // namespace ringdist
