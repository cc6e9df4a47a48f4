// Times on a device's clock, and the clock that a gradient compressor uses.
#pragma once

#include <c10/core/Event.h>

#include <memory>
#include <optional>

#include "compress/time_marker.h"
#include "torch/base/devices.h"

namespace ringdist {

// Of a device's clock: passed when the device has done what this thread's current stream holds now.
class DeviceTimeMarker final : public TimeMarker {
 public:
  explicit DeviceTimeMarker(c10::Device device)
      : event_(device.type(), c10::EventFlag::BACKEND_DEFAULT) {  // one that tells the time
    event_.record(current_stream(device));
  }

  bool passed() const override { return event_.query(); }
  double since(const TimeMarker& earlier) const override {
    return 1e-3 * static_cast<const DeviceTimeMarker&>(earlier).event_.elapsedTime(event_);
  }

 private:
  c10::Event event_;
};

// By which "auto" tells how long things take: the clock of the device of the first bucket. Any
// thread, once that has come.
class BucketClock {
 public:
  void begin(c10::Device device) {
    if (!device_) device_ = device;
  }
  TimeMarkerPtr now() const {
    if (!device_ || device_->is_cpu()) return host_now();
    return std::make_shared<DeviceTimeMarker>(*device_);
  }

 private:
  std::optional<c10::Device> device_;
};

}  // namespace ringdist
