// The DeviceRunner of a group (engine/device/device_runner.h): gives each device streams of its
// own, orders them after the callers', and watches what is on them. What runs there is its
// DevicePath's.
#pragma once

#include <sys/types.h>

#include <compare>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/api/cuda_api.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/event_watcher.h"
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

class StreamRunner final : public DeviceRunner {
 public:
  // `cuda` outlives all runners, and what they watch.
  StreamRunner(CudaApi& cuda, std::shared_ptr<EventWatcher> watch, std::shared_ptr<DevicePath> way);
  // Waits for nothing. In a child of fork(), where CUDA does not work, it does nothing.
  ~StreamRunner() override;

  // While the place's stream is captured, what would have to be made is an Error (kNotSupported):
  // such an op must have been called before.
  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<std::shared_ptr<DeviceWork>> start(DeviceOp op, std::function<void(Error)> ended) override;
  Result<MakeDeviceRunner> split(const std::vector<int>& ranks, TimePoint deadline) override;
  void abort() override { path_->abort(); }

 private:
  // Of a device: for collectives (kNoPeer), for sends to a peer, or for receives from it, which
  // must not wait for each other.
  struct Key {
    int device;
    int peer;
    bool sends;
    auto operator<=>(const Key&) const = default;
  };
  struct OpStream {
    Stream stream = nullptr;
    std::shared_ptr<void> ready;  // an Event: the caller's stream has come to the op
  };

  static Key key_of(int device, const OpSpec& request);
  Result<std::shared_ptr<void>> make_event();
  Error make_lane(Key key);
  Result<std::shared_ptr<DeviceWork>> enqueue(const DeviceOp& op, const OpStream& lane,
                                              WatchedOp& watched);

  CudaApi& cuda_;
  const std::shared_ptr<EventWatcher> watch_;
  const std::shared_ptr<DevicePath> path_;
  const pid_t pid_;
  std::map<Key, OpStream> lanes_;
};

}  // namespace ringdist::gpu
