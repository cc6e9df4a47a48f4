// A group's ops on devices, on this rank: has each prepared, numbered and started, one after the
// other, by a DeviceRunner that is made when the first comes.
//
// Any thread. Lock order: order_, held in calls that wait for other ranks, before all of a
// Communicator's; mutex_ is a leaf.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/device/device_runner.h"
#include "engine/op/op.h"

namespace ringdist {

// What DeviceOps needs of its Communicator. Any thread; asked in submit() only.
class DeviceOpsDelegate {
 public:
  virtual ~DeviceOpsDelegate() = default;
  // Why no op can be submitted; success if one can.
  virtual Error refusal() const = 0;
  virtual Milliseconds timeout() const = 0;
  // Waits until the group's members are known, and what plans depend on with them.
  virtual Error await_members(TimePoint deadline) = 0;
  virtual std::unique_ptr<RunnerDelegate> runner_group() = 0;
  // Plans, numbers and enqueues the op. An Error: it has taken no number.
  virtual Result<std::shared_ptr<Op>> accept(OpRequest request) = 0;
  // Ends the group, on all ranks.
  virtual void end_group(const std::string& why) = 0;
  // What a device calls when it has run the op. Any thread, whether the host lives or not.
  virtual std::function<void(Error)> when_ended(const std::shared_ptr<Op>& op) = 0;
};

class DeviceOps {
 public:
  // `make`: null if there are no devices for the group.
  DeviceOps(DeviceOpsDelegate& delegate, std::string group, MakeDeviceRunner make)
      : delegate_(delegate), group_(std::move(group)), make_(std::move(make)) {}

  // Of requests with a place: has what they need made, in their order; submit() then waits for no
  // other rank. Errors: as of submit(); what is neither the call's fault nor that of the group's
  // end ends the group, as other ranks wait for this one.
  Error prepare(const std::vector<const OpRequest*>& requests);
  // Of a request with a place. As of Communicator::submit(), but that it may wait for other ranks,
  // and that what a device could not prepare or start ends the group; what it did not start has
  // taken its number.
  Result<std::shared_ptr<Op>> submit(OpRequest request);

  // What runs ops of a group of these ranks of the group on devices, null if nothing does. All
  // ranks of the group call it alike, in the order of its ops: it may wait for the others, until
  // the group's timeout. Errors: as of submit().
  Result<MakeDeviceRunner> split(const std::vector<int>& ranks);

  // Aborts the runner, also one that is yet to be made. Once.
  void abort();
  // No op comes any more. Lets the runner go, aborted or not: it ends here, or where it is still
  // being called.
  void end(bool aborts);
  // A runner has been made.
  bool any() const;

 private:
  // The runner ends first.
  struct OwnedRunner {
    std::unique_ptr<RunnerDelegate> group;
    std::unique_ptr<DeviceRunner> runner;
  };
  using Start = Result<std::shared_ptr<DeviceWork>>;

  void end_group(const Error& cause);
  Result<std::shared_ptr<OwnedRunner>> prepared(const OpRequest& request, TimePoint deadline)
      RINGDIST_REQUIRES(order_);
  TimePoint deadline_of(const OpRequest& request) const;
  Result<std::shared_ptr<OwnedRunner>> made(const DeviceStream& place, TimePoint deadline)
      RINGDIST_REQUIRES(order_);
  Error keep(const std::shared_ptr<OwnedRunner>& made);
  Result<std::shared_ptr<Op>> start(DeviceRunner& runner, std::shared_ptr<Op> op,
                                    std::shared_ptr<void> memory) RINGDIST_REQUIRES(order_);
  // Why the group ended, if it has: that is what ended the rest.
  Error first_cause(const Error& error) const;

  DeviceOpsDelegate& delegate_;
  const std::string group_;
  const MakeDeviceRunner make_;
  std::mutex order_;  // of ops on devices

  mutable std::mutex mutex_;
  std::shared_ptr<OwnedRunner> made_ RINGDIST_GUARDED_BY(mutex_);
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
  bool ended_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
