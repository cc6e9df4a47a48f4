// Time markers of a device's clock, and the clock that a GradientCompressor uses.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <optional>

#include "compress/time_marker.h"
#include "torch/base/devices.h"

namespace ringdist {

// A time marker of a device. It has passed when the device has finished the present work of this
// thread's current stream.
class DeviceTimeMarker final : public TimeMarker {
 public:
  explicit DeviceTimeMarker(c10::Device device)
      : event_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {  // an event with timing
    event_.record(current_stream(device));
  }

  bool passed() const override { return event_.query(); }
  // Returns the seconds from `earlier`, a marker of the same device, to this one. Both must have
  // passed.
  double since(const TimeMarker& earlier) const override {
    return 1e-3 * static_cast<const DeviceTimeMarker&>(earlier).event_.elapsedTime(event_);
  }

 private:
  c10::Event event_;
};

// The clock by which method "auto" measures durations. It is the clock of the device of the first
// bucket. Any thread, after the first bucket has come.
class BucketClock {
 public:
  // Chooses the clock by the first bucket. Later calls do nothing.
  void begin(c10::Device device) {
    if (!device_) device_ = device;
  }
  // Returns a marker of the present time.
  TimeMarkerPtr now() const {
    if (!device_ || device_->is_cpu()) return host_now();
    return std::make_shared<DeviceTimeMarker>(*device_);
  }

 private:
  std::optional<c10::Device> device_;
};

}  // namespace ringdist
