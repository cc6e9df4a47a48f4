// By way of the host, for devices that do not reach each other, ranks that share one, and where
// NCCL is not there: values go to pinned memory, where the group's host ops - shared memory, UCX -
// move and reduce them, and back. Of compressed ops encoded bytes go, and devices do the rest.
#pragma once

#include <memory>

#include "cuda/stream/host_link.h"
#include "cuda/stream/stream_schedules.h"
#include "cuda/stream/way.h"

namespace ringdist::gpu {

class HostWay final : public Way {
 public:
  HostWay(CudaApi& cuda, RunnerGroup& group);
  ~HostWay() override { staging_.group->end(); }

  Error prepare(const DevicePlace& place, const Request& request, TimePoint deadline) override;
  Error enqueue(const DeviceOp& op, Stream stream, Held& held) override;
  Error check() override;
  bool captures(const Request&) const override { return false; }
  // The host's ops end with the group, and with them what waits for them.
  void abort() override {}

 private:
  Error enqueue_plain(const DeviceOp& op, Stream stream, Held& held);
  Result<std::byte*> pinned_for(const Buffer& values, Buffer& out, Held& held);

  const Staging staging_;
  const int rank_;
  StreamSchedules schedules_;
};

}  // namespace ringdist::gpu
