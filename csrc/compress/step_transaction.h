// Transaction and statistics of one step, which is all buckets of one backward pass.
//
// A step changes the state of its parameters: residuals and right factors of PowerSGD. All changes
// take effect once all buckets have been averaged. If one fails, or the pass is cut short, nothing
// changes, so that the step can be repeated.
//
// Not thread-safe, except for the flag that all_in() returns.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/bucket.h"
#include "compress/parameter_table.h"

namespace ringdist {

// Collects the changes of one step, and applies or discards them at its end.
class StepTransaction {
 public:
  // State kIdle is between two steps. In kOpen, buckets are expected or in flight. In kFailed, a
  // bucket could not be started, or the pass was cut short; other buckets may still be in flight.
  enum class State { kIdle, kOpen, kFailed };
  // Result of try_commit().
  enum class Outcome { kOpen, kSucceeded, kFailed };

  State state() const { return state_; }
  // Returns true if a bucket with this index is the first of a new step. Buckets come in the order
  // of their index, but those that no rank used may be missing.
  bool begins_with(size_t index) const;

  // Begins a step. Discards what the last step left open.
  void begin();
  // Records that a bucket of the step has come and was started.
  void arrive(const Bucket& bucket);
  // Adds a new residual of the parameter, which is being written by an op or is complete. `nonzero`
  // means that it may have values other than zero.
  void add_residual(Parameter& parameter, bool nonzero) {
    residuals_.push_back({&parameter, nonzero});
  }
  // Adds a new right factor of the parameter, which an op writes to Parameter::next_right.
  void add_right(Parameter& parameter) { rights_.push_back(&parameter); }
  // Adds a bucket that has been started.
  void add_bucket(PendingBucketPtr bucket) { buckets_.push_back(std::move(bucket)); }
  // Marks the step as failed if one is under way, because a bucket could not be started.
  void fail();
  // Returns the flag that all buckets of the step have come. Any thread may set it. Each step has a
  // flag of its own, so keep a copy of the pointer.
  const std::shared_ptr<std::atomic<bool>>& all_in() const { return all_in_; }

  // Ends the step when no more buckets will come: marks it as failed if some are missing. Returns
  // when none is in flight.
  void end();
  // If all buckets have come, waits for those with PendingBucket::ends_later(). Otherwise returns
  // at once.
  void await_devices() const;
  // Applies or discards the changes if the step is over. Returns kOpen if there is no step, or if a
  // bucket is expected or in flight.
  Outcome try_commit();
  // If a step is open and all its buckets have come, waits for them and applies all changes, even
  // if some buckets have failed. Otherwise, also in kFailed, returns false and does nothing.
  bool commit_all();

 private:
  // Discards the step and all its changes. Its ops must have ended, as they write to the buffers of
  // the next residuals and factors.
  void drop();
  // Applies the changes of the step.
  void commit();

  // A parameter with a new residual.
  struct ResidualChange {
    Parameter* parameter;
    bool nonzero;
  };
  State state_ = State::kIdle;
  size_t last_ = 0;  // index of the last bucket of this step or the one before
  std::vector<ResidualChange> residuals_;
  std::vector<Parameter*> rights_;
  std::vector<PendingBucketPtr> buckets_;
  std::shared_ptr<std::atomic<bool>> all_in_ = std::make_shared<std::atomic<bool>>();
};

// Statistics of the steps of a GradientCompressor. A failed step leaves them unchanged.
struct CompressionReport {
  int64_t step = -1;  // the last complete step; -1 if there was none
  std::string codec;  // codec of that step
  // choice of "auto" for each bucket; empty before the first choice
  std::vector<std::string> chosen;
  std::string reason;        // explanation of that choice
  double residual_norm = 0;  // norm of all residuals of this rank, without the loss scale
  // Bytes that this rank sends without and with codecs, in the last step and in total.
  double bytes_uncompressed = 0, bytes_sent = 0;
  double total_uncompressed = 0, total_sent = 0;
  // Relative error |loss| / |gradient + residual|, of the last measured step and of all of them.
  int64_t measured_step = -1;
  double relative_error = 0, total_relative_error = 0;
};

// Collects a CompressionReport step by step. Not thread-safe.
class StepStatistics {
 public:
  explicit StepStatistics(std::string codec) { now_.codec = std::move(codec); }

  // Return the report of the current or last step, and that of the step before it.
  const CompressionReport& now() const { return now_; }
  const CompressionReport& before() const { return before_; }

  // Begins a step with its codec. Keeps the choice of "auto" if `codec` is still "auto".
  void begin(int64_t step, std::string codec);
  // Records the choice of "auto".
  void choose(std::vector<std::string> chosen, std::string reason);
  // Adds the bytes of one parameter, without and with its method.
  void add_bytes(double uncompressed, double sent);
  // Adds a parameter to the measurement of the relative error. `contribution` is the squared norm
  // of its gradient plus residual. The parameter must outlive the step.
  void measure(const Parameter& parameter, double contribution);

  // End the step. After a success the residuals hold what the step lost, so the error can be
  // computed. A failure restores the report of the step before.
  void succeed();
  void fail();
  // Discards the measurement of the current step.
  void drop_measurement();

 private:
  CompressionReport now_;
  CompressionReport before_;
  std::vector<const Parameter*> measured_;
  double contribution_ = 0;  // squared norms, of this step
  double total_contribution_ = 0;
  double total_loss_ = 0;
};

}  // namespace ringdist
