#pragma once

#include <memory>

#include "base/clock.h"
#include "compress/time_marker.h"

namespace ringdist {

// Of the host's clock: in the past.
class HostTimeMarker final : public TimeMarker {
 public:
  explicit HostTimeMarker(TimePoint time) : time_(time) {}

  bool passed() const override { return true; }
  double since(const TimeMarker& earlier) const override {
    return seconds(time_ - static_cast<const HostTimeMarker&>(earlier).time_);
  }

 private:
  const TimePoint time_;
};

inline TimeMarkerPtr host_now() { return std::make_shared<HostTimeMarker>(Clock::now()); }

}  // namespace ringdist
