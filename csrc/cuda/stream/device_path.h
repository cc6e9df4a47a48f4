// Interface to a path for the ops of a group on devices. A path is NcclPath or HostPath;
// PathSelector chooses one of them.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "cuda/api/cuda_api.h"
#include "engine/device/device_runner.h"

namespace ringdist::gpu {

class DevicePath;
// Creates the path of another group, for example after a split.
using MakeDevicePath = std::function<std::shared_ptr<DevicePath>(RunnerDelegate&)>;
// Memory and objects that must stay alive until a stream has done its work.
using KeptAlive = std::vector<std::shared_ptr<void>>;

// One path of a group. Contracts that refer to DeviceRunner are in engine/device/device_runner.h.
// One thread at a time, except for check() and abort(), which any thread may call.
class DevicePath {
 public:
  virtual ~DevicePath() = default;

  // See DeviceRunner::prepare(). The place's device is current in the calling thread.
  virtual Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) = 0;
  // See DeviceRunner::split(). By default a path has nothing to split.
  virtual Result<MakeDevicePath> split(const std::vector<int>& /*ranks*/, TimePoint /*deadline*/) {
    return MakeDevicePath();
  }
  // Enqueues a prepared op on the stream, and does not wait for its work. NCCL may wait until the
  // op's deadline for ranks that it connects. The op's device is current. The caller uses one
  // stream for all collectives of a device, one for all sends to a rank, and one for all receives
  // from it.
  //
  // Adds to `held` what must stay alive until the stream has done the work. This also holds after
  // an Error, which may leave a part of the op on the stream.
  virtual Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) = 0;
  // Returns why enqueued work does not end or has failed. Returns no error if no reason has been
  // found. Any thread.
  virtual Error check() = 0;
  // Returns why a prepared op of this kind cannot be captured into a graph, or no error if it can.
  virtual Error captured(const OpSpec& request) const = 0;
  // See DeviceRunner::abort().
  virtual void abort() = 0;
  // Reports that the group no longer exists. Work on the streams may still be checked.
  virtual void end() {}
};

}  // namespace ringdist::gpu
