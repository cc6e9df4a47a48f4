// Compresses the gradients of one DistributedDataParallel model: decides per parameter and step how
// they travel, keeps what was lost, counts what was saved. Behind both forms of the hook.
//
// Any thread, without the GIL; DDP calls run() bucket by bucket, the same on all ranks. The lock is
// never held while `at_step` runs, which takes the GIL.
#pragma once

#include <functional>
#include <mutex>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "compress/auto_codec.h"
#include "compress/link_probe.h"
#include "torch/ddp/bucket_work.h"
#include "torch/ddp/compression_options.h"
#include "torch/ddp/parameter_table.h"
#include "torch/ddp/step_changes.h"

namespace ringdist {

// Asked once at the start of each step: the codec ("": no schedule, as the options say) and the
// loss scale (0: none). Must say the same codec on all ranks.
using AtStep = std::function<std::pair<std::string, double>(int64_t step)>;

struct CompressionReport {
  int64_t step = -1;  // the last one that was complete
  std::string codec;
  std::vector<std::string> chosen;  // by "auto", of each bucket; empty before it has chosen
  std::string reason;               // why
  double residual_norm = 0;         // of all that this rank owes, without the loss scale
  // What this rank sends for the last step's gradients, and for all, without and with codecs.
  double bytes_uncompressed = 0, bytes_sent = 0;
  double total_uncompressed = 0, total_sent = 0;
  // |what was lost| / |gradient + residual|, of the last step that was measured and of all.
  int64_t measured_step = -1;
  double relative_error = 0, total_relative_error = 0;
};

struct CompressionState {
  int64_t steps = 0;
  double scale = 1;
  // This rank's: fp32, one dimension, row-major.
  std::vector<std::pair<std::string, at::Tensor>> residuals;
};

class Compression {
 public:
  // Raises ValueError for an option.
  Compression(c10::intrusive_ptr<ProcessGroupRing> group, CompressionOptions options,
              AtStep at_step);

  // Before the first step. Raises ValueError for the rule.
  void add_parameter(const at::Tensor& tensor, std::string name, ParameterRule rule);

  // Averages the bucket's gradients over the group, in place. The Future holds a list with the
  // bucket's buffer. float64 and complex gradients go uncompressed; sparse ones raise TypeError.
  // What is owed changes when all buckets of a backward pass have been averaged. A step of which
  // one was not does not count, and leaves all as it was before it.
  c10::intrusive_ptr<c10::ivalue::Future> run(c10d::GradBucket& bucket);

  // Between two steps; while one runs, of the last one that has ended.
  CompressionReport report();
  double residual_norm();
  CompressionState state();
  // Replaces all residuals. Raises ValueError, with nothing changed, for one of a wrong size.
  void load(const CompressionState& state);

 private:
  c10::intrusive_ptr<c10::ivalue::Future> start(c10d::GradBucket& bucket);
  bool begins_step(const c10d::GradBucket& bucket);
  void begin_step();
  void use_scale(double scale) RINGDIST_REQUIRES(mutex_);
  std::string codec_at(int64_t step, const std::string& given) const;
  BucketPlan plan(c10d::GradBucket& bucket, std::vector<LowRankInput>& low_rank)
      RINGDIST_REQUIRES(mutex_);
  ResidualSpan prepare(Parameter& parameter, bool feedback, DType dtype, const at::Tensor& gradient)
      RINGDIST_REQUIRES(mutex_);
  void settle() RINGDIST_REQUIRES(mutex_);
  double unscaled_norm() RINGDIST_REQUIRES(mutex_);
  void finish_measurement() RINGDIST_REQUIRES(mutex_);
  void choose_codecs() RINGDIST_REQUIRES(mutex_);
  void resume_auto() RINGDIST_REQUIRES(mutex_);
  void use_choice() RINGDIST_REQUIRES(mutex_);
  void watch(c10d::GradBucket& bucket, c10::ivalue::Future& future) RINGDIST_REQUIRES(mutex_);
  std::vector<double> low_rank_seconds(double latency, double plain) RINGDIST_REQUIRES(mutex_);

  const c10::intrusive_ptr<ProcessGroupRing> group_;
  const CompressionOptions options_;
  const AtStep at_step_;
  const TreatmentPtr none_;
  // Shared with the callbacks of Futures, which may outlive us. Null: the codec is never "auto".
  struct Watch {
    explicit Watch(int size) : codec(size) {}
    std::mutex mutex;
    AutoCodec codec RINGDIST_GUARDED_BY(mutex);
    std::vector<std::vector<Parameter*>> buckets;  // what each held in the last step
  };
  const std::shared_ptr<Watch> auto_;

  std::mutex mutex_;
  LinkProbe probe_ RINGDIST_GUARDED_BY(mutex_);
  BucketWork work_ RINGDIST_GUARDED_BY(mutex_);
  ParameterTable table_ RINGDIST_GUARDED_BY(mutex_);
  StepChanges changes_ RINGDIST_GUARDED_BY(mutex_);
  int64_t steps_ RINGDIST_GUARDED_BY(mutex_) = 0;    // begun
  std::string current_ RINGDIST_GUARDED_BY(mutex_);  // the codec of the step
  size_t last_bucket_ RINGDIST_GUARDED_BY(mutex_) = 0;
  bool complete_ RINGDIST_GUARDED_BY(mutex_) = true;  // the last step's buckets have all come
  double scale_ RINGDIST_GUARDED_BY(mutex_) = 1;
  CompressionReport now_ RINGDIST_GUARDED_BY(mutex_);
  CompressionReport before_ RINGDIST_GUARDED_BY(mutex_);
  std::vector<const Parameter*> measured_ RINGDIST_GUARDED_BY(mutex_);
  double contribution_ RINGDIST_GUARDED_BY(mutex_) = 0;  // squared norms
  double total_contribution_ RINGDIST_GUARDED_BY(mutex_) = 0;
  double total_loss_ RINGDIST_GUARDED_BY(mutex_) = 0;
};

}  // namespace ringdist
