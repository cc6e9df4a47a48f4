// One bucket on its way: the allreduce over some of its pieces and the low-rank averages of others,
// as one Future.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "compress/low_rank.h"
#include "compress/treatment.h"
#include "torch/backend.h"

namespace ringdist {

// A matrix of the bucket, and where its approximation and the next one begin.
struct LowRankInput {
  BucketPlan::LowRank matrix;
  std::shared_ptr<std::vector<float>> right;
  std::shared_ptr<std::vector<float>> next_right;
};

class BucketWork {
 public:
  explicit BucketWork(c10::intrusive_ptr<ProcessGroupRing> group) : group_(std::move(group)) {}

  // Averages the buffer in place. The Future holds a list with the buffer. `keep_alive` holds the
  // residuals. The same order of calls on all ranks.
  c10::intrusive_ptr<c10::ivalue::Future> run(const at::Tensor& buffer, const BucketPlan& plan,
                                              std::vector<LowRankInput> low_rank,
                                              std::shared_ptr<void> keep_alive);

 private:
  c10::intrusive_ptr<c10d::Work> run_rest(const at::Tensor& buffer, const BucketPlan& plan,
                                          const std::shared_ptr<void>& keep_alive);
  LowRankReducer& reducer();

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  std::unique_ptr<LowRankReducer> reducer_;  // made when first needed, at the same step everywhere
};

}  // namespace ringdist
