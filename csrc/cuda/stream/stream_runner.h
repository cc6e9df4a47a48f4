// The DeviceRunner of a group (engine/device/device_runner.h). Gives each device streams of its
// own, orders them behind the callers' streams, and watches the ops on them. A DevicePath does the
// work of the ops.
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

// See DeviceRunner for the contracts and threads.
class StreamRunner final : public DeviceRunner {
 public:
  // `cuda` must outlive all runners and the ops that they watch.
  StreamRunner(CudaApi& cuda, std::shared_ptr<EventWatcher> watch, std::shared_ptr<DevicePath> way);
  // Does not wait; the EventWatcher goes on to watch ops that have not ended. In a child of fork(),
  // where CUDA does not work, leaves everything alone.
  ~StreamRunner() override;

  // While the place's stream is being captured into a graph, nothing that waits for other ranks can
  // be created. Returns kNotSupported if the op needs that, or if its path refuses captures.
  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Result<std::shared_ptr<DeviceWork>> start(DeviceOp op, std::function<void(Error)> ended) override;
  Result<MakeDeviceRunner> split(const std::vector<int>& ranks, TimePoint deadline) override;
  void abort() override { path_->abort(); }

 private:
  // Key of a stream: a device with a purpose, which is collectives (kNoPeer), sends to a peer, or
  // receives from it. They have separate streams, because they must not wait for each other.
  struct Key {
    int device;
    int peer;
    bool sends;
    auto operator<=>(const Key&) const = default;
  };
  // A stream for ops, with the event that orders it behind the caller's stream.
  struct OpStream {
    Stream stream = nullptr;
    std::shared_ptr<void> ready;  // an Event, which the caller's stream records
  };

  // Returns the key of an op's stream.
  static Key key_of(int device, const OpSpec& request);
  Result<std::shared_ptr<void>> make_event();
  // Creates the stream of a key, unless it exists. The key's device must be current.
  Error make_lane(Key key);
  // Orders the stream behind the caller's, enqueues the op, and records its event in `watched`.
  Result<std::shared_ptr<DeviceWork>> enqueue(const DeviceOp& op, const OpStream& lane,
                                              WatchedOp& watched);

  CudaApi& cuda_;
  const std::shared_ptr<EventWatcher> watch_;
  const std::shared_ptr<DevicePath> path_;
  const pid_t pid_;  // process that created the runner, to detect fork()
  std::map<Key, OpStream> lanes_;
};

}  // namespace ringdist::gpu
