// Compresses the gradients of one model. Decides for each parameter and step how its gradient
// travels, keeps the residuals, and counts the bytes saved. Its owner passes buckets, starts the
// ops that are planned for them, and returns what is in flight; for DistributedDataParallel the
// owner is DdpCompressor (torch/ddp).
//
// Any thread may call it, but buckets come one after another, in the same order on all ranks. The
// lock is not held during `at_step`, which may take locks of its own. It may be held during the
// owner's other functions, so these must not call the compressor. Exceptions of the
// owner's functions pass through to the owner. All other failures are returned as Error.
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

// Runs the codec "auto" for a GradientCompressor. Measures its buckets, probes the links when a
// choice is due, and sets the chosen codec for the parameters of each bucket.
//
// Not thread-safe, except for the callbacks of buckets. They may run on any thread, and after the
// destruction of the tuner.
class AutoCodecTuner {
 public:
  // `size` is the number of ranks. `now` is also called in callbacks of buckets, where it must
  // return the time at which the bucket ended.
  AutoCodecTuner(CostProbe& probe, int size, std::optional<bool> feedback, Now now);

  // Result of a choice.
  struct Chosen {
    std::vector<std::string> codecs;  // by bucket
    std::string reason;
  };

  // Continues after steps with another codec. Applies the last choice and returns it, or nullopt if
  // there is none.
  std::optional<Chosen> resume(ParameterTable& table);
  // Called before the first bucket of a step. Returns the new choice if one was due. All ranks make
  // choices at the same steps, so their ops match. Errors are those of the probe.
  Result<std::optional<Chosen>> begin_step(ParameterTable& table);
  // Records that a bucket of `elements` elements is ready. `pending` reports the end of its
  // average. The parameters must outlive the tuner.
  void watch(size_t index, double elements, std::vector<Parameter*> parameters,
             PendingBucket& pending);

 private:
  // State that callbacks of buckets share, because they may outlive the tuner.
  struct State {
    explicit State(int size) : codec(size) {}
    std::mutex mutex;
    AutoCodec codec RINGDIST_GUARDED_BY(mutex);
  };
  // Applies the current choice to the parameters.
  Chosen use_choice(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  // Measures and chooses, or postpones the choice if some rank has no complete step. It waits for
  // ops while it holds the lock, so callbacks of buckets wait, too.
  Result<std::optional<Chosen>> choose(ParameterTable& table) RINGDIST_REQUIRES(state_->mutex);
  // Returns the place where ops are timed.
  GradientMemory& memory() const;
  // Estimates PowerSGD's seconds for each bucket. `plain` is the seconds per element of an
  // uncompressed allreduce.
  Result<std::vector<double>> low_rank_seconds(ParameterTable& table, double latency, double plain);

  const std::optional<bool> feedback_;
  const Now now_;
  CostProbe& probe_;
  std::vector<std::vector<Parameter*>> buckets_;  // parameters of each bucket in the last step
  const std::shared_ptr<State> state_;
};

// Called once at the start of each step. Returns the codec ("" for that of the options) and the
// loss scale (0 for none). It must return the same codec on all ranks.
using AtStep = std::function<std::pair<std::string, double>(int64_t step)>;

// Functions of the GradientCompressor's owner.
struct GradientCompressorDelegate {
  AtStep at_step;  // may be null
  // Called when a step begins. The owner sets the flag, on any thread, once it is certain that no
  // more buckets of this step will come.
  std::function<void(std::shared_ptr<std::atomic<bool>>)> watch_pass;
  // Emits a warning to the user.
  std::function<void(const std::string&)> warn;
  Now now;
};

// State of one rank for a checkpoint.
struct CompressionState {
  int64_t steps = 0;                     // successful steps
  double scale = 1;                      // loss scale of the residuals
  std::vector<NamedResidual> residuals;  // residuals of this rank, row-major
};

// Compression state of one model. Each bucket goes through begin(), plan() and add(); a step ends
// with the first bucket of the next one, or when its state is queried.
class GradientCompressor {
 public:
  // Creates a compressor after checking the options. `probe` must outlive it. Errors are those of
  // check_options().
  static Result<std::unique_ptr<GradientCompressor>> create(CostProbe& probe,
                                                            CompressionGroup group,
                                                            CompressionOptions options,
                                                            GradientCompressorDelegate owner);

  // Adds a parameter with its rule, before the first step. `name` identifies its residual in
  // checkpoints. Error kInvalidArgument: the rule is not valid, or a deterministic group does not
  // allow it.
  Error add_parameter(ParameterInfo info, std::string name, ParameterRule rule);

  // Must be called before each bucket. If `index` starts a step, waits for the end of the last step
  // and begins a new one. Error kInvalidArgument: at_step returned an invalid codec or scale. Other
  // errors are those of the probe.
  Error begin(size_t index);
  // Plans the ops that average the bucket over the group, in place. May change its values, by
  // clipping or by adding a residual, also before an error. Gradients of dtypes that codecs do not
  // support travel uncompressed.
  Result<PlannedBucket> plan(const Bucket& bucket);
  // Adds the planned bucket to the step, after its ops were started. Residuals change once all
  // buckets of a backward pass have been averaged. If one fails, the step does not count and leaves
  // everything as before.
  Error add(const Bucket& bucket, const PendingBucketPtr& pending);
  // Returns the state for a group that cannot be used any more, if the step may have succeeded on
  // other ranks. All that this rank had to send has arrived in that case, so the changes are
  // applied as if the step had succeeded here. If a bucket is missing, returns state() instead.
  CompressionState state_if_committed();
  // Reports that a bucket will not come although begin() was called for it, for example because
  // begin(), plan() or the start of its ops failed.
  void fail();
  // Returns the name of a parameter. Adds the parameter to the table if it is new.
  Result<std::string> name_of(ParameterKey key, const std::function<ParameterInfo()>& describe);

  // Return the statistics, the norm of this rank's residuals without the loss scale, and the state.
  // They refer to the last step that has ended.
  CompressionReport report();
  double residual_norm();
  CompressionState state();
  // Replaces all residuals and the number of steps, after the ops of an open step have ended. Error
  // kInvalidArgument, with nothing changed: a residual has a wrong size, or the scale is too far
  // from the current one.
  Error load(const CompressionState& state);

 private:
  GradientCompressor(CostProbe& probe, CompressionGroup group, CompressionOptions options,
                     GradientCompressorDelegate owner);
  // Begins a step with a codec and a loss scale (0 for none).
  Error begin_step(int64_t step, const std::string& wanted, double scale) RINGDIST_REQUIRES(mutex_);
  // Converts residuals and running means to a new loss scale.
  Error use_scale(double scale) RINGDIST_REQUIRES(mutex_);
  // Lets "auto" begin its step, and logs a new choice on rank 0.
  Error begin_auto(bool resumes) RINGDIST_REQUIRES(mutex_);
  // Reports a started bucket to "auto".
  Error watch(const Bucket& bucket, PendingBucket& pending) RINGDIST_REQUIRES(mutex_);
  // Applies or discards the changes of a step that is over.
  void finish_step() RINGDIST_REQUIRES(mutex_);
  // Returns the norm of all residuals, divided by the loss scale.
  double unscaled_norm() RINGDIST_REQUIRES(mutex_);

  const CompressionGroup group_;
  const CompressionOptions options_;
  const GradientCompressorDelegate owner_;

  std::mutex mutex_;
  // Null if the codec is never "auto".
  std::unique_ptr<AutoCodecTuner> auto_ RINGDIST_GUARDED_BY(mutex_);
  ParameterTable table_ RINGDIST_GUARDED_BY(mutex_);
  StepTransaction transaction_ RINGDIST_GUARDED_BY(mutex_);
  StepStatistics record_ RINGDIST_GUARDED_BY(mutex_);
  BucketPlanner planner_ RINGDIST_GUARDED_BY(mutex_);
  int64_t steps_ RINGDIST_GUARDED_BY(mutex_) = 0;    // number of steps begun, without failed ones
  std::string current_ RINGDIST_GUARDED_BY(mutex_);  // codec of the step
  double scale_ RINGDIST_GUARDED_BY(mutex_) = 1;     // current loss scale
};

}  // namespace ringdist
