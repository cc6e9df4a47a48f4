// Ops on devices that are decided on: started in that order, which is the same on all ranks, by a
// thread that may wait - the first of a device waits for the other ranks, which a lane must not -
// and in a group of their own, as an op takes its number when it is started.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "engine/communicator.h"
#include "engine/op/op.h"

namespace ringdist {

class DeviceQueue : public std::enable_shared_from_this<DeviceQueue> {
 public:
  // A sibling of `group` runs the ops, made when the first one comes; what ends it ends `group`.
  explicit DeviceQueue(std::shared_ptr<Communicator> group) : group_(std::move(group)) {}
  DeviceQueue(const DeviceQueue&) = delete;
  DeviceQueue& operator=(const DeviceQueue&) = delete;

  // Of requests with a place. Brief; with the lane's driver token. Each `ended` is called once, and
  // again with the token, also where the op could not be started. An Error: none is called.
  Error add(std::vector<OpRequest> requests);

 private:
  void start_all();
  void start(OpRequest request);
  Result<std::shared_ptr<Communicator>> devices();

  const std::shared_ptr<Communicator> group_;
  std::shared_ptr<Communicator> devices_;  // by who starts, one thread at a time
  std::mutex mutex_;
  std::deque<OpRequest> waiting_ RINGDIST_GUARDED_BY(mutex_);
  bool is_starting_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist
