// One bucket on its way: the allreduce over some of its pieces and the low-rank averages of others,
// as one Future.
#pragma once

#include <memory>

#include "compress/bucket.h"
#include "compress/cost_probe.h"
#include "compress/low_rank.h"
#include "torch/backend.h"
#include "torch/ddp/device_low_rank.h"
#include "torch/work/future.h"

namespace ringdist {

// One thread at a time.
class BucketReducer {
 public:
  // `probe` outlives it.
  BucketReducer(c10::intrusive_ptr<ProcessGroupRing> group, CostProbe& probe)
      : group_(std::move(group)), probe_(probe) {}

  using Running = DeviceLowRank::Running;
  // Averages the bucket in place. The same order of calls on all ranks.
  Running run(const at::Tensor& buffer, PlannedBucket planned);

 private:
  WorkPtr run_rest(const at::Tensor& buffer, const PlannedBucket& planned);
  Running run_on_host(const at::Tensor& buffer, PlannedBucket planned);
  Running run_on_device(const at::Tensor& buffer, PlannedBucket planned);
  void check_not_forked() const;
  // Each is made when first needed, at the same step everywhere.
  LowRankReducer& reducer();
  DeviceLowRank& streamed(c10::Device device);

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  CostProbe& probe_;
  std::unique_ptr<LowRankReducer> reducer_;
  std::unique_ptr<DeviceLowRank> streamed_;
};

}  // namespace ringdist
