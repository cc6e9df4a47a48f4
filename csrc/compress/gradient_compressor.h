// Compresses the gradients of one model: decides per parameter and step how they travel, keeps what
// was lost, counts what was saved. Its owner hands it buckets and starts the ops that it plans:
// torch/ddp does for DistributedDataParallel.
//
// Any thread; buckets come one by one, the same on all ranks. The lock is never held while
// `at_step` runs, which may take locks of its own. What the owner's functions throw goes back to
// the owner; all else that fails is an Error.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "compress/auto_codec.h"
#include "compress/bucket.h"
#include "compress/bucket_planner.h"
#include "compress/compression_options.h"
#include "compress/cost_probe.h"
#include "compress/parameter_table.h"
#include "compress/step_transaction.h"
#include "compress/time_marker.h"

namespace ringdist {

// "auto" in a Session: watches its buckets, asks the link when a choice is due, and gives the
// parameters of each bucket the codec that was chosen for it. Not thread-safe, but for the
// callbacks of buckets, which may come from any thread and after our end.
class AutoCodecTuner {
 public:
  // In a group of `size`. `now` is also called in callbacks of buckets: then, of the end of theirs.
  AutoCodecTuner(CostProbe& probe, int size, std::optional<bool> feedback, Now now);

  struct Chosen {
    std::vector<std::string> codecs;  // of each bucket
    std::string reason;
  };

  // After steps with another codec: on from the last choice; nullopt if there was none.
  std::optional<Chosen> resume(ParameterTable& table);
  // Before the first bucket of a step: all ranks come here at the same steps, so the ops match.
  // What was chosen, if a choice was due. Errors are those of the probe.
  Result<std::optional<Chosen>> begin_step(ParameterTable& table);
  // A bucket of so many elements is ready; `pending` tells when it is done.
  void watch(size_t index, double elements, std::vector<Parameter*> parameters,
             PendingBucket& pending);

 private:
  struct State {
    explicit State(int size) : codec(size) {}
    std::mutex mutex;
    AutoCodec codec RINGDIST_GUARDED_BY(mutex);
  };
  Chosen use_choice(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  Result<std::optional<Chosen>> choose(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  GradientMemory& memory() const;
  Result<std::vector<double>> low_rank_seconds(ParameterTable& table, double latency, double plain);

  const std::optional<bool> feedback_;
  const Now now_;
  CostProbe& probe_;
  std::vector<std::vector<Parameter*>> buckets_;  // what each held in the last step
  const std::shared_ptr<State> state_;
};

// Asked once at the start of each step: the codec ("": no schedule, as the options say) and the
// loss scale (0: none). Must say the same codec on all ranks.
using AtStep = std::function<std::pair<std::string, double>(int64_t step)>;

// What a GradientCompressor asks of its owner.
struct GradientCompressorDelegate {
  AtStep at_step;  // may be null
  // A step begins: whoever knows that no bucket is to come any more sets the flag, on any thread.
  std::function<void(std::shared_ptr<std::atomic<bool>>)> watch_pass;
  std::function<void(const std::string&)> warn;
  Now now;
};

struct CompressionState {
  int64_t steps = 0;
  double scale = 1;
  std::vector<NamedResidual> residuals;  // this rank's, row-major
};

class GradientCompressor {
 public:
  // `probe` outlives it. Errors as check_options().
  static Result<std::unique_ptr<GradientCompressor>> create(CostProbe& probe,
                                                            CompressionGroup group,
                                                            CompressionOptions options,
                                                            GradientCompressorDelegate owner);

  // Before the first step. Errors (kInvalidArgument): the rule.
  Error add_parameter(ParameterInfo info, std::string name, ParameterRule rule);

  // Before each bucket: begins a step if it is the first of one, after the last step has ended.
  // Errors: what at_step said (kInvalidArgument); those of the probe.
  Error begin(size_t index);
  // Averages the bucket's gradients over the group, in place, by what `start` starts. What is owed
  // changes when all buckets of a backward pass have been averaged. A step of which one was not
  // does not count, and leaves all as it was before it. dtypes that no codec takes go uncompressed.
  Error run(const Bucket& bucket, const StartBucket& start);
  // For a step that may have ended well elsewhere, when the group is of no use any more: all that
  // this rank had to send has arrived then, so the state is as if it had ended well here, too.
  // Else, and where a bucket did not come, it is as state().
  CompressionState state_if_committed();
  // A bucket for which begin() was called does not come, or begin() or run() did not return well.
  void fail();
  // As the table has it, or describes it from now on.
  Result<std::string> name_of(ParameterKey key, const std::function<ParameterInfo()>& describe);

  // Between two steps; while one runs, of the last one that has ended.
  CompressionReport report();
  double residual_norm();
  CompressionState state();
  // Replaces all residuals. Errors (kInvalidArgument), with nothing changed, for one of a wrong
  // size or a scale too far from today's.
  Error load(const CompressionState& state);

 private:
  GradientCompressor(CostProbe& probe, CompressionGroup group, CompressionOptions options,
                     GradientCompressorDelegate owner);
  Error begin_step(int64_t step, const std::string& wanted, double scale) RINGDIST_REQUIRES(mutex_);
  Error use_scale(double scale) RINGDIST_REQUIRES(mutex_);
  Error begin_auto(bool resumes) RINGDIST_REQUIRES(mutex_);
  Error watch(const Bucket& bucket, PendingBucket& pending) RINGDIST_REQUIRES(mutex_);
  void finish_step() RINGDIST_REQUIRES(mutex_);
  double unscaled_norm() RINGDIST_REQUIRES(mutex_);

  const CompressionGroup group_;
  const CompressionOptions options_;
  const GradientCompressorDelegate owner_;

  std::mutex mutex_;
  std::unique_ptr<AutoCodecTuner> auto_ RINGDIST_GUARDED_BY(mutex_);  // null: the codec never is
  ParameterTable table_ RINGDIST_GUARDED_BY(mutex_);
  StepTransaction transaction_ RINGDIST_GUARDED_BY(mutex_);
  StepStatistics record_ RINGDIST_GUARDED_BY(mutex_);
  BucketPlanner planner_ RINGDIST_GUARDED_BY(mutex_);
  int64_t steps_ RINGDIST_GUARDED_BY(mutex_) = 0;    // begun
  std::string current_ RINGDIST_GUARDED_BY(mutex_);  // the codec of the step
  double scale_ RINGDIST_GUARDED_BY(mutex_) = 1;
};

}  // namespace ringdist
