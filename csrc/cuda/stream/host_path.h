// By way of the host, for devices that do not reach each other, ranks that share one, and where
// NCCL is not there: values go to pinned memory, where the group's host ops - shared memory, UCX -
// move and reduce them, and back. Of compressed ops encoded bytes go, and devices do the rest; so
// they do with large values of ranks that share a host, whose copies reach each other's boxes.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/host_mailboxes.h"
#include "cuda/stream/pinned_pool.h"
#include "cuda/stream/staged_exchange.h"
#include "cuda/stream/stream_schedule.h"

namespace ringdist::gpu {

// Moves bytes by way of the host: into pinned memory, by sends and receives of the group's host
// ops, and out of pinned memory. Of what varies in a message its length goes first, and then so
// many bytes. Of one op.

// What is common to a way's ops.
struct HostPathState {
  CudaApi& cuda;
  int rank;
  int size;
  std::shared_ptr<RevocableGroup> group;
  std::shared_ptr<PinnedPool> pinned;
  std::shared_ptr<FirstError> failed;

  Result<std::shared_ptr<StagedExchange>> exchange() const;
};

class HostLink final : public DeviceLink {
 public:
  HostLink(const HostPathState& staging, Stream stream, KeptAlive& held)
      : staging_(staging), stream_(stream), held_(held) {}

  Error begin() override;
  Error send(int peer, const DeviceBytes& message, Stream stream) override;
  Error receive(int peer, const DeviceBytes& message, Stream stream) override;
  Error end() override;

 private:
  struct Arrival {
    void* to;
    const std::byte* from;
    size_t bytes;
  };
  Result<std::byte*> add(int peer, bool sends, const DeviceBytes& message);
  Error visit(StagedExchange& exchange) const;

  const HostPathState& staging_;
  const Stream stream_;
  KeptAlive& held_;
  Result<StagedExchange*> lengths();

  std::shared_ptr<StagedExchange> lengths_;  // before the messages, if some vary
  std::shared_ptr<StagedExchange> exchange_;
  std::vector<Arrival> arrivals_;
};

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
