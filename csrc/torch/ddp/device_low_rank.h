// Low-rank averages on devices: a stream for each computes the factors and waits for the ops that
// average them, while the caller's stream goes on. The host waits for nothing.
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

// One thread at a time; the same order of calls on all ranks.
class DeviceLowRank {
 public:
  using WorkRef = c10::intrusive_ptr<c10d::Work>;
  // An average over the group, in place, on the current stream.
  using Average = std::function<WorkRef(const at::Tensor& factors)>;
  using MakeStages = std::function<std::unique_ptr<LowRankStages>(
      const at::Tensor& bucket, const std::vector<LowRankInput>& inputs)>;

  DeviceLowRank(Average average, MakeStages make)
      : average_(std::move(average)), make_(std::move(make)) {}
  // Waits for what is in flight.
  ~DeviceLowRank();

  // The op on all of a bucket that is in no matrix.
  using StartRest = std::function<WorkRef(const PlannedBucket& planned)>;
  struct Running {
    FuturePtr future;  // holds a list with the bucket
    PendingBucketPtr pending;
  };
  // Averages the bucket's matrices; `rest` is null if there is nothing else in it. Raises what the
  // ops raise.
  Running run(const at::Tensor& bucket, PlannedBucket planned, const StartRest& rest);

 private:
  // Memory that a stream may still use: what is owed and the factors, which belong to other ones.
  struct Flight {
    std::shared_ptr<c10::Event> done;
    PlannedBucket planned;
  };
  c10::Stream stream_of(c10::Device device);
  void forget_landed();

  const Average average_;
  const MakeStages make_;
  std::map<c10::DeviceIndex, c10::Stream> streams_;
  std::deque<Flight> flights_;
};

}  // namespace ringdist
