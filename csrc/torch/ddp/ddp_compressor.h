// Compresses the gradients of one DistributedDataParallel model: a GradientCompressor
// (compress/gradient_compressor.h) that is handed DDP's buckets. Behind both forms of the hook.
//
// Any thread, without the GIL; DDP calls run() bucket by bucket, the same on all ranks.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <utility>
#include <vector>

#include "compress/bucket.h"
#include "compress/cost_probe.h"
#include "compress/gradient_compressor.h"
#include "compress/link_probe.h"
#include "compress/low_rank.h"
#include "torch/backend.h"
#include "torch/ddp/device_low_rank.h"
#include "torch/ddp/device_time_marker.h"
#include "torch/work/future.h"

namespace ringdist {

// One bucket on its way: the allreduce over some of its pieces and the low-rank averages of others,
// as one Future.

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

class DdpCompressor {
 public:
  using Residuals = std::vector<std::pair<std::string, at::Tensor>>;
  // As CompressionState; residuals are fp32, of one dimension, row-major.
  struct State {
    int64_t steps = 0;
    double scale = 1;
    Residuals residuals;
  };

  // Which buckets a step has.
  enum class Buckets : uint8_t {
    kOfDdp,  // where the backward pass ends, those that have not come do not
    kAll,    // all of them come, at any time
  };

  // Raises ValueError for an option.
  DdpCompressor(c10::intrusive_ptr<ProcessGroupRing> group, CompressionOptions options,
                AtStep at_step, Buckets buckets = Buckets::kOfDdp);

  // Before the first step. Raises ValueError for the rule.
  void add_parameter(const at::Tensor& tensor, std::string name, ParameterRule rule);

  // Averages the bucket's gradients over the group, in place. The Future holds a list with the
  // bucket's buffer. float64 and complex gradients go uncompressed; sparse ones raise TypeError.
  // What is owed, and failures: as of GradientCompressor::run.
  FuturePtr run(c10d::GradBucket& bucket);

  CompressionReport report() { return compressor_->report(); }
  double residual_norm() { return compressor_->residual_norm(); }
  // `committed`: as GradientCompressor::state_if_committed().
  State state(bool committed = false);
  // Replaces all residuals. Raises ValueError, with nothing changed, for one of a wrong size.
  void load(const State& state);

 private:
  Bucket describe(c10d::GradBucket& bucket);

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  const std::shared_ptr<Communicator> made_for_;
  const std::shared_ptr<BucketClock> clock_ = std::make_shared<BucketClock>();
  LinkProbe probe_;     // as work_
  BucketReducer work_;  // under the GradientCompressor's lock
  const std::unique_ptr<GradientCompressor> compressor_;
};

// The hook that DDP's reducer calls for each bucket, without Python.
class CompressHook final : public c10d::CppCommHookInterface<std::shared_ptr<DdpCompressor>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override {
    return state_->run(bucket);
  }
};

// Raises c10::Error if the reducer has a hook already.
inline void register_comm_hook(c10d::Reducer& reducer, std::shared_ptr<DdpCompressor> compression) {
  reducer.register_comm_hook(std::make_unique<CompressHook>(std::move(compression)));
}

}  // namespace ringdist
