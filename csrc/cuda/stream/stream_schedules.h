// The ops of a group that run as schedules on streams - compressed ones, and reductions that NCCL
// does not have - and the schedules of the last of them. One thread at a time; check() by any.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <tuple>

#include "base/thread_annotations.h"
#include "cuda/stream/device_link.h"
#include "cuda/stream/device_path.h"
#include "cuda/stream/stream_schedule.h"
#include "engine/device_runner.h"

namespace ringdist::gpu {

class StreamSchedules {
 public:
  StreamSchedules(CudaApi& cuda, int rank, int size) : cuda_(cuda), rank_(rank), size_(size) {}

  // Before an op is enqueued. Errors: kNotSupported, as of schedule_refusal(); CUDA's.
  Error prepare(const OpSpec& request);
  // As DevicePath::enqueue().
  Error enqueue(const DeviceOp& op, Stream stream, DeviceLink& link, KeptAlive& held);
  // That bytes came which no encoder writes.
  Error check() const;

 private:
  using Key = std::tuple<const Algorithm*, Collective, int64_t, int, uint64_t>;

  Error make_malformed();
  std::shared_ptr<int> malformed() const;
  const StreamSchedule& find(const DeviceOp& op);
  Shape shape_of(const OpSpec& request) const;

  CudaApi& cuda_;
  const int rank_;
  const int size_;
  std::map<Key, StreamSchedule> schedules_;
  StreamSchedule last_;       // one with parts of its own
  mutable std::mutex mutex_;  // a leaf
  // Pinned, set to 1 by kernels; null before the first compressed op.
  std::shared_ptr<int> malformed_ RINGDIST_GUARDED_BY(mutex_);
};

}  // namespace ringdist::gpu
