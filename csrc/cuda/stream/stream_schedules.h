// The ops of a group that run as schedules on streams - compressed ones, and reductions that NCCL
// does not have - and the schedules of the last of them. One thread at a time.
#pragma once

#include <map>
#include <memory>
#include <tuple>

#include "cuda/stream/link.h"
#include "cuda/stream/stream_schedule.h"
#include "engine/runner.h"

namespace ringdist::gpu {

class StreamSchedules {
 public:
  StreamSchedules(CudaApi& cuda, int rank, int size) : cuda_(cuda), rank_(rank), size_(size) {}

  // Error (kNotSupported): a codec without kernels, more ranks than a launch takes sources.
  Error check(const Request& request) const;
  // As Way::enqueue(). `malformed`: pinned, set to 1 by bytes that no encoder writes.
  Error enqueue(const DeviceOp& op, Stream stream, Link& link, int* malformed);

 private:
  using Key = std::tuple<const Algorithm*, Collective, int64_t, int, uint64_t>;

  const StreamSchedule& find(const DeviceOp& op);
  Shape shape_of(const Request& request) const;

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  std::map<Key, StreamSchedule> schedules_;
  StreamSchedule last_;  // one with parts of its own
};

}  // namespace ringdist::gpu
