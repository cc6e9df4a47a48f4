// How the ops of a group run on its devices: by NCCL (nccl_path.h), or by way of the host.
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
// Makes that of another group.
using MakeDevicePath = std::function<std::shared_ptr<DevicePath>(RunnerDelegate&)>;
using KeptAlive = std::vector<std::shared_ptr<void>>;

class DevicePath {
 public:
  virtual ~DevicePath() = default;

  // As DeviceRunner::prepare(); the place's device is the thread's.
  virtual Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) = 0;
  // As DeviceRunner::split().
  virtual Result<MakeDevicePath> split(const std::vector<int>& /*ranks*/, TimePoint /*deadline*/) {
    return MakeDevicePath();
  }
  // Puts a prepared op on the stream, which is the same for all collectives of a device, for all
  // sends to a rank, and for all receives from it. Waits for nothing. Memory that must stay until
  // the stream has done it is added to `held`, also where it ends with an Error: that may leave the
  // stream with a part of the op.
  virtual Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) = 0;
  // Why what is on the streams does not end, or ended badly; success if nothing is known. Any
  // thread.
  virtual Error check() = 0;
  // Why such an op, which is prepared, cannot be captured into a graph; success if it can.
  virtual Error captured(const OpSpec& request) const = 0;
  // As DeviceRunner::abort().
  virtual void abort() = 0;
  // There is no group from now on. What is on the streams may still be checked.
  virtual void end() {}
};

}  // namespace ringdist::gpu
