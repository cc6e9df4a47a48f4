// DeviceOps: runs the ops of a group on the devices of this rank. Each op is prepared, numbered and
// started, one after the other, by a DeviceRunner. The runner is made for the first op.
//
// Any thread. Lock order: order_ is held in calls that wait for other ranks, and comes before all
// locks of a Communicator. mutex_ is a leaf.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/device/device_runner.h"
#include "engine/op/op.h"

namespace ringdist {

// Services that DeviceOps needs of its Communicator. Any thread; called in prepare(), submit() and
// split() only.
class DeviceOpsDelegate {
 public:
  virtual ~DeviceOpsDelegate() = default;
  // Returns why no op can be submitted; success if one can.
  virtual Error refusal() const = 0;
  // Returns the group's default timeout.
  virtual Milliseconds timeout() const = 0;
  // Waits until the group has formed, including the topology and costs on which plans depend.
  virtual Error await_members(TimePoint deadline) = 0;
  // Makes the RunnerDelegate for a new runner.
  virtual std::unique_ptr<RunnerDelegate> runner_group() = 0;
  // Plans, numbers and queues an op. After an Error it has no number.
  virtual Result<std::shared_ptr<Op>> accept(OpRequest request) = 0;
  // Fails the group on all ranks.
  virtual void end_group(const std::string& why) = 0;
  // Returns the function that a device calls when it has run the op. It may be called on any
  // thread, also after the delegate has gone.
  virtual std::function<void(Error)> when_ended(const std::shared_ptr<Op>& op) = 0;
};

// Runs ops on devices for one Communicator.
class DeviceOps {
 public:
  // `make` is null if the group can use no devices. The delegate must outlive this object's calls.
  DeviceOps(DeviceOpsDelegate& delegate, std::string group, MakeDeviceRunner make)
      : delegate_(delegate), group_(std::move(group)), make_(std::move(make)) {}

  // Makes everything that these requests need on their devices, in order. Afterwards submit()
  // waits for other ranks only where NCCL connects them by their first call. Errors: those of
  // submit(). An error of the runner that is neither the caller's fault nor due to the group's end
  // fails the group, because other ranks wait for this one. If the runner itself cannot be made,
  // the group goes on.
  Error prepare(const std::vector<const OpRequest*>& requests);
  // Submits an op on a device. Like Communicator::submit(), but it may wait for other ranks. If the
  // op could not be prepared, the group fails as in prepare(). If it could not be started, the
  // group fails, and the op has used its number.
  Result<std::shared_ptr<Op>> submit(OpRequest request);

  // Returns a function that makes the device runner of a subgroup with these ranks; null if devices
  // are not supported. All ranks of the group have to call it alike, in the order of its ops. It
  // may wait for the others, until the group's timeout. Errors: those of submit().
  Result<MakeDeviceRunner> split(const std::vector<int>& ranks);

  // Aborts the runner, also one that is made later. Takes effect once.
  void abort();
  // Accepts no further ops and releases the runner, after an abort if `aborts` is set. The runner
  // is destroyed here, or by another thread that is still calling it.
  void end(bool aborts);
  // Returns true if a runner has been made and not released.
  bool any() const;

 private:
  // A runner and its delegate. The runner is destroyed first.
  struct OwnedRunner {
    std::unique_ptr<RunnerDelegate> group;
    std::unique_ptr<DeviceRunner> runner;
  };
  using Start = Result<std::shared_ptr<DeviceWork>>;

  // Fails the group because of `cause`, unless all ranks refuse such an op alike.
  void end_group(const Error& cause);
  // Prepares an op and returns the runner.
  Result<std::shared_ptr<OwnedRunner>> prepared(const OpRequest& request, TimePoint deadline)
      RINGDIST_REQUIRES(order_);
  // Returns the end of the request's own timeout, or of the group's if it has none, from this call.
  TimePoint deadline_of(const OpRequest& request) const;
  // Returns the runner; makes it if there is none. Waits for the group to form.
  Result<std::shared_ptr<OwnedRunner>> made(const DeviceStream& place, TimePoint deadline)
      RINGDIST_REQUIRES(order_);
  // Stores a new runner, and aborts it if the group was aborted meanwhile.
  Error keep(const std::shared_ptr<OwnedRunner>& made);
  // Starts an op that has its number. `memory` goes to the runner, which frees it when the device
  // needs it no more. Errors: those of the runner, after which the op counts as ended with them.
  Result<std::shared_ptr<Op>> start(DeviceRunner& runner, std::shared_ptr<Op> op,
                                    std::shared_ptr<void> memory) RINGDIST_REQUIRES(order_);
  // Returns why the group ended, if it has ended, because that caused the other errors. Else
  // `error`.
  Error first_cause(const Error& error) const;

  DeviceOpsDelegate& delegate_;
  const std::string group_;
  const MakeDeviceRunner make_;
  std::mutex order_;  // serializes ops on devices, so that all ranks start them in one order

  mutable std::mutex mutex_;
  std::shared_ptr<OwnedRunner> made_ RINGDIST_GUARDED_BY(mutex_);
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool ended_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
