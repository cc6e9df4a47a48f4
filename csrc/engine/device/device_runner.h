// DeviceRunner: runs those ops of a group that have their tensors on a device. libringdist_cuda.so
// implements it (engine/device/devices.h). The group numbers every op, counts it as in flight until
// it has ended, and fails it when the group fails.
//
// The types in this file are compiled twice, here and in that library. They may contain only values
// and virtual functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "plan/op_spec.h"
#include "plan/plan.h"

namespace ringdist {

// An op to run on a device.
struct DeviceOp {
  OpSpec request;
  Buffer input;  // like those of OpRequest, but with addresses of the device
  Buffer output;
  Plan plan;
  uint64_t number = 0;  // 0 for a send or receive
  std::string text;     // "all_reduce #12 (float32, 1000 elements, SUM)", for messages
  TimePoint deadline = TimePoint::max();
  DeviceStream device_stream;
  // The memory of the op. Released on a thread of the runner, once the op has ended on the device;
  // at once if the op was not started.
  std::shared_ptr<void> keep_alive;
};

// An op that was started. Any thread.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // Makes work that is queued later on `stream`, a cudaStream_t of the op's device, wait for the
  // op. Does not block.
  virtual Error order(void* stream) = 0;
};

class DeviceRunner;
class RunnerDelegate;

// Makes the DeviceRunner of a group. The RunnerDelegate outlives it. An Error ends the op that
// needed the runner; the next op tries again.
using MakeDeviceRunner = std::function<Result<std::unique_ptr<DeviceRunner>>(RunnerDelegate&)>;

// Runs the device ops of one group.
class DeviceRunner {
 public:
  // Does not wait. Ops in flight are watched until they end, so `ended` may be called later.
  virtual ~DeviceRunner() = default;

  // Makes everything that such an op needs on its device. The first op of a device and the first
  // between two ranks wait for the other ranks, until `deadline` at most. Every op is prepared
  // before it is started. One thread at a time. Errors: kNotSupported for an op that devices cannot
  // run, and those of CUDA and NCCL.
  virtual Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) = 0;

  // Queues the op on a stream, behind earlier ops and behind the present work of its caller's
  // stream. Does not wait for the op. Where NCCL connects ranks by their first call, it may wait
  // for them until the op's deadline. `ended` is called once, on another thread, when the op has
  // ended on the device or failed. If the op is captured into a graph, `ended` is called at once,
  // within start().
  //
  // The runner calls `ended` without a lock, and releases it afterwards: it holds the op and so the
  // DeviceWork. After an Error `ended` is not called; a part of the op may be on the stream, and
  // its memory is kept until that part has ended. One thread at a time, in the order of the op
  // numbers.
  virtual Result<std::shared_ptr<DeviceWork>> start(DeviceOp op,
                                                    std::function<void(Error)> ended) = 0;

  // Makes a function that creates the runner of a subgroup, from the resources of this one. Returns
  // null if this runner has nothing that would help, or if this rank is not among `ranks`. All
  // ranks of the group have to call it alike, in the order of its collectives. It may wait for them
  // until `deadline`.
  //
  // Fails with kInvalidArgument if ranks disagree; then nothing was done. After any other error,
  // ranks may be waiting for this one, so the group has to end. One thread at a time, including
  // prepare().
  virtual Result<MakeDeviceRunner> split(const std::vector<int>& ranks, TimePoint deadline) = 0;

  // Called when the group has failed. Nothing on the device, nor prepare(), waits for another rank
  // any longer. Ops in flight end soon with an Error; later calls fail at once. Any thread, also
  // during prepare() and start(); called once.
  virtual void abort() = 0;
};

// An op on the host that a DeviceRunner requests.
struct HostOp {
  OpSpec request;
  Buffer input;  // same meaning as in OpRequest
  Buffer output;
  std::shared_ptr<void> keep_alive;
};

// Memory of the ranks of a group, which every rank reads and writes. Mapped as long as this object
// lives.
class GroupSharedMemory {
 public:
  virtual ~GroupSharedMemory() = default;
  // Returns the memory of a rank. Nothing orders the accesses of different ranks; the caller does.
  virtual Bytes of_rank(int rank) const = 0;
};

// Services that a DeviceRunner needs of its group.
class RunnerDelegate {
 public:
  virtual ~RunnerDelegate() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the bytes of each of these ranks, in their order. `ranks` are all ranks of the group,
  // or two that include this one. All of them call it in one order, with equal sizes. Call it in
  // prepare() only; blocks. Errors: those of the group's ops.
  virtual Result<std::vector<std::vector<std::byte>>> exchange(const std::vector<int>& ranks,
                                                               ConstBytes mine,
                                                               TimePoint deadline) = 0;
  // Returns shared memory with so many zero bytes of each rank, aligned to a page. Returns null on
  // all ranks if they are on several hosts or it cannot be had. All ranks call it, in prepare()
  // only; blocks. Errors: those of the group's ops.
  virtual Result<std::shared_ptr<GroupSharedMemory>> share(size_t bytes, TimePoint deadline) = 0;
  // Sets the PCI address of the device, such as "0000:17:00.0". The progress thread, and memory
  // that is shared later, stay near it. Call it in prepare() only.
  virtual void set_affinity_near(const std::string& address) = 0;
  // Starts an op of the same ranks on host memory, outside the group's order of ops. All ranks call
  // it alike, in one order; sends and receives follow the usual rules. Does not block. `ended` is
  // called once, on any thread and maybe at once, but not if an Error is returned.
  virtual Error run_on_host(HostOp op, std::function<void(Error)> ended) = 0;
};

}  // namespace ringdist
