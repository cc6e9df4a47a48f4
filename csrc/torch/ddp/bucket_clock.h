#pragma once

#include <memory>
#include <optional>

#include "compress/host_time_marker.h"
#include "torch/ddp/device_time_marker.h"

namespace ringdist {

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
