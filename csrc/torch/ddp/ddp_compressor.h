// Compresses the gradients of one DistributedDataParallel model: a GradientCompressor
// (compress/gradient_compressor.h) that is handed DDP's buckets. Behind both forms of the hook.
//
// Any thread, without the GIL; DDP calls run() bucket by bucket, the same on all ranks.
#pragma once

#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

#include "compress/gradient_compressor.h"
#include "compress/link_probe.h"
#include "torch/ddp/bucket_clock.h"
#include "torch/ddp/bucket_reducer.h"

namespace ringdist {

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

}  // namespace ringdist
