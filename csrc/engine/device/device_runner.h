// Runs those ops of a group whose tensors are on a device. libringdist_cuda.so makes it
// (engine/device/devices.h); the group gives every op its number, counts it as in flight until it
// has ended, and ends it with the group.
//
// What crosses this interface is built twice, here and in that library: values and virtual calls
// only.
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

struct DeviceOp {
  OpSpec request;
  Buffer input;  // as OpRequest's; addresses of the device
  Buffer output;
  Plan plan;
  uint64_t number = 0;  // none of a send or a receive
  std::string text;     // "all_reduce #12 (float32, 1000 elements, SUM)", for messages
  TimePoint deadline = TimePoint::max();
  DeviceStream device_stream;
  // Let go on a thread of the runner's, once the op has ended on the device; at once where it was
  // not started.
  std::shared_ptr<void> keep_alive;
};

// An op that was started. Any thread.
class DeviceWork {
 public:
  virtual ~DeviceWork() = default;
  // What `stream`, a cudaStream_t of the op's device, gets from now on comes after the op. Does not
  // block.
  virtual Error order(void* stream) = 0;
};

class DeviceRunner;
class RunnerDelegate;

// Makes what runs a group's ops on devices; the RunnerDelegate outlives it. An Error ends the op
// that it was made for, and the next one tries again.
using MakeDeviceRunner = std::function<Result<std::unique_ptr<DeviceRunner>>(RunnerDelegate&)>;

class DeviceRunner {
 public:
  // Ends what is in flight, and returns when no call of an `ended` is under way: none follows.
  virtual ~DeviceRunner() = default;

  // Makes what an op of that kind needs there: the first of a device, and the first between two
  // ranks, wait for the other ranks, until `deadline` at most. Every op is prepared before it is
  // started. Errors: kNotSupported, an operation that devices do not have; what CUDA or NCCL
  // refuse. One thread at a time.
  virtual Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) = 0;

  // Puts the op on a stream, behind those started before and what its caller's stream holds; waits
  // for nothing. `ended` is called once, on another thread, when the op has ended on the device, or
  // with what ended it; of an op that is captured into a graph, at once, in here. The runner holds
  // no lock meanwhile, and drops it then: it holds the op, and so the DeviceWork. An Error: nothing
  // was started, and `ended` is not called. One thread at a time, in the order of the numbers.
  virtual Result<std::shared_ptr<DeviceWork>> start(DeviceOp op,
                                                    std::function<void(Error)> ended) = 0;

  // Makes the runner of a group of these ranks of the group, from what this one has of them; null
  // if it has nothing that would help, or this rank is not among them. All ranks of the group call
  // it alike, in the order of its collectives; it waits for them, where that helps, until
  // `deadline` at most. Errors: kInvalidArgument, ranks disagree, and nothing was done; else others
  // may wait for this rank: the group has to end. Beside prepare(): one thread at a time.
  virtual Result<MakeDeviceRunner> split(const std::vector<int>& ranks, TimePoint deadline) = 0;

  // The group has failed: nothing on the device waits for another rank any longer, nor prepare().
  // Whatever is in flight ends with an Error soon, and whatever is prepared or started later at
  // once. Any thread, also beside prepare() and start(); once.
  virtual void abort() = 0;
};

// An op of the host's that a DeviceRunner asks for.
struct HostOp {
  OpSpec request;
  Buffer input;  // as OpRequest's
  Buffer output;
  std::shared_ptr<void> keep_alive;
};

// Memory of the ranks of a group, which each of them reads and writes. There as long as this is.
class GroupSharedMemory {
 public:
  virtual ~GroupSharedMemory() = default;
  virtual Bytes of_rank(int rank) const = 0;
};

// What a DeviceRunner needs of its group.
class RunnerDelegate {
 public:
  virtual ~RunnerDelegate() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What each of these ranks gave, in their order: all ranks of the group, or two of them, this one
  // among them. All of those call it, in one order, with as many bytes. In prepare() only. Blocks;
  // Errors: of the group's ops.
  virtual Result<std::vector<std::vector<std::byte>>> exchange(const std::vector<int>& ranks,
                                                               ConstBytes mine,
                                                               TimePoint deadline) = 0;
  // So many bytes of each rank, zeros, which begin a page. Null, on all ranks alike, where they are
  // not on one host, or it cannot be had. All ranks call it, in prepare() only. Blocks; Errors: of
  // the group's ops.
  virtual Result<std::shared_ptr<GroupSharedMemory>> share(size_t bytes, TimePoint deadline) = 0;
  // Where its device is on the PCI bus, "0000:17:00.0": the thread that moves the host's messages,
  // and memory that is shared, stay near from now on. In prepare() only.
  virtual void set_affinity_near(const std::string& address) = 0;
  // Starts an op of the same ranks on memory of the host, apart from the group's own: all of them
  // call it alike, in one order; sends and receives as anywhere. Does not block. `ended` is called
  // once, on any thread and maybe at once, but not if an Error is returned.
  virtual Error run_on_host(HostOp op, std::function<void(Error)> ended) = 0;
};

}  // namespace ringdist
