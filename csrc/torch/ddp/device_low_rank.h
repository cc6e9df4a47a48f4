// DeviceLowRank: low-rank averages on devices. A stream per device computes the factors and waits
// for the ops that average them, while the caller's stream goes on. The host does not block.
#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "compress/bucket.h"
#include "torch/ddp/low_rank_tensors.h"
#include "torch/work/future.h"

namespace ringdist {

// One thread at a time. All ranks have to make the same calls in the same order.
class DeviceLowRank {
 public:
  using WorkRef = c10::intrusive_ptr<c10d::Work>;
  // Averages `factors` over the group, in place, on the current stream.
  using Average = std::function<WorkRef(const at::Tensor& factors)>;
  using MakeStages = std::function<std::unique_ptr<LowRankStages>(
      const at::Tensor& bucket, const std::vector<LowRankInput>& inputs)>;

  // `make` makes the arithmetic of a bucket.
  DeviceLowRank(Average average, MakeStages make)
      : average_(std::move(average)), make_(std::move(make)) {}
  // Waits for the work in flight.
  ~DeviceLowRank();

  // Starts the op on the elements of a bucket that belong to no matrix.
  using StartRest = std::function<WorkRef(const PlannedBucket& planned)>;
  struct Running {
    FuturePtr future;  // holds a list with the bucket
    PendingBucketPtr pending;
  };
  // Averages the bucket's matrices. `rest` is null if the bucket has nothing else. Raises the
  // exceptions of the ops.
  Running run(const at::Tensor& bucket, PlannedBucket planned, const StartRest& rest);

 private:
  // Memory that a stream may still use: residuals and factors, which belong to other streams.
  struct Flight {
    std::shared_ptr<c10::Event> done;
    PlannedBucket planned;
  };
  // Returns the stream for `device`.
  c10::Stream stream_of(c10::Device device);
  // Drops flights that have ended on their device.
  void forget_landed();

  const Average average_;
  const MakeStages make_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
  std::deque<Flight> flights_;
};

}  // namespace ringdist
