// By way of the host, for devices that do not reach each other, ranks that share one, and where
// NCCL is not there: values go to pinned memory, where the group's host ops - shared memory, UCX -
// move and reduce them, and back. Of compressed ops encoded bytes go, and devices do the rest; so
// they do with large values of ranks that share a host, whose copies reach each other's boxes.
#pragma once

#include <memory>
#include <mutex>

#include "base/thread_annotations.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/host_link.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/stream_schedules.h"

namespace ringdist::gpu {

class HostPath final : public DevicePath {
 public:
  HostPath(CudaApi& cuda, RunnerDelegate& group);
  ~HostPath() override { HostPath::end(); }

  Error prepare(const DeviceStream& place, const OpSpec& request, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override;
  Error check() override;
  Error captured(const OpSpec& request) const override;
  void abort() override;
  void end() override { staging_.group->end(); }

 private:
  // None until the first op that suits them is prepared, and where there are none.
  std::shared_ptr<HostMailboxes> mailboxes() const;
  Error make_mailboxes(TimePoint deadline);
  void set_affinity_near(int device);
  Error enqueue_by_mailboxes(const DeviceOp& op, Stream stream, KeptAlive& held);
  Error enqueue_plain(const DeviceOp& op, Stream stream, KeptAlive& held);
  Result<std::byte*> pinned_for(const Buffer& values, Buffer& out, KeptAlive& held);

  const HostPathState staging_;
  RunnerDelegate& group_;
  StreamSchedules schedules_;
  bool near_ = false;         // the host's side has been told where the device is
  bool asked_ = false;        // for boxes
  mutable std::mutex mutex_;  // a leaf
  std::shared_ptr<HostMailboxes> mailboxes_ RINGDIST_GUARDED_BY(mutex_);
  bool aborted_ RINGDIST_GUARDED_BY(mutex_) = false;
};

}  // namespace ringdist::gpu
