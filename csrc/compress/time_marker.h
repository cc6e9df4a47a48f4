// Time markers measure how long buckets and ops take. A marker of the host's clock is a time stamp.
// A marker of a device is an event on a stream (torch/ddp/ddp_compressor.h), and passes when
// the device reaches it.
//
// Markers are immutable, so any thread may use them.
#pragma once

#include <functional>
#include <memory>

#include "base/clock.h"

namespace ringdist {

// One point in time of one clock.
class TimeMarker {
 public:
  virtual ~TimeMarker() = default;
  // Returns true once the point in time has been reached. Does not wait; a device's marker queries
  // the driver.
  virtual bool passed() const = 0;
  // Returns the seconds from `earlier` to this marker. Both must have passed and belong to the same
  // clock.
  virtual double since(const TimeMarker& earlier) const = 0;
};

using TimeMarkerPtr = std::shared_ptr<const TimeMarker>;
// Creates a marker of the present on one clock. A clock of a device puts an event on the calling
// thread's current stream.
using Now = std::function<TimeMarkerPtr()>;

// A time stamp of the host's steady clock. It has always passed.
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

// Returns the present time of the host's clock.
inline TimeMarkerPtr host_now() { return std::make_shared<HostTimeMarker>(Clock::now()); }

}  // namespace ringdist
