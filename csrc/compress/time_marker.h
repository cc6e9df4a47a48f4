// A point in time, for telling how long things took. One of a device is put on a stream, and comes
// to pass when the device gets there. Immutable: any thread.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace ringdist {

class TimeMarker {
 public:
  virtual ~TimeMarker() = default;
  virtual bool passed() const = 0;
  // Seconds from an earlier one of the same clock. Both have passed.
  virtual double since(const TimeMarker& earlier) const = 0;
};

using TimeMarkerPtr = std::shared_ptr<const TimeMarker>;
// The present one, of one clock.
using Now = std::function<TimeMarkerPtr()>;

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
