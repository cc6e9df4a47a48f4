// One bucket on its way: the allreduce over some of its pieces and the low-rank averages of others,
// as one Future.
#pragma once

#include <memory>

#include "compress/bucket.h"
#include "compress/low_rank.h"
#include "torch/backend.h"
#include "torch/work/future.h"

namespace ringdist {

// One thread at a time.
class BucketWork {
 public:
  explicit BucketWork(c10::intrusive_ptr<ProcessGroupRing> group) : group_(std::move(group)) {}

  struct Running {
    FuturePtr future;                      // holds a list with the buffer
    c10::intrusive_ptr<c10d::Work> alone;  // null: of several ops
  };
  // Averages the buffer in place. The same order of calls on all ranks.
  Running run(const at::Tensor& buffer, PlannedBucket planned);

 private:
  c10::intrusive_ptr<c10d::Work> run_rest(const at::Tensor& buffer, const BucketPlan& plan,
                                          const std::shared_ptr<void>& keep_alive);
  LowRankReducer& reducer();

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  std::unique_ptr<LowRankReducer> reducer_;  // made when first needed, at the same step everywhere
};

}  // namespace ringdist
