// One step of a Session, that is all buckets of a backward pass, and what it changes in its
// parameters: what they owe and where approximations begin. All of it takes effect once all buckets
// were averaged; if one was not, or the pass was cut short, nothing does, so that the step can be
// repeated.
//
// Not thread-safe, but for all_in().
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "compress/bucket.h"
#include "compress/parameter_table.h"

namespace ringdist {

class StepTransaction {
 public:
  // kIdle: between two steps. kOpen: buckets are to come or on their way. kFailed: a bucket could
  // not even start, or the pass was cut short; others may still be on their way.
  enum class State { kIdle, kOpen, kFailed };
  enum class Outcome { kOpen, kSucceeded, kFailed };

  State state() const { return state_; }
  // Whether a bucket is the first of a step. They come in order of their index, but some may be
  // missing, those that no rank used.
  bool begins_with(size_t index) const;

  // A step begins; what the last one left open is forgotten.
  void begin();
  // A bucket of it has come.
  void arrive(const Bucket& bucket);
  // What the parameter will owe has been, or is being, written; `nonzero`: it may be other than
  // zero.
  void add_residual(Parameter& parameter, bool nonzero) {
    residuals_.push_back({&parameter, nonzero});
  }
  void add_right(Parameter& parameter) { rights_.push_back(&parameter); }
  void add_bucket(PendingBucketPtr bucket) { buckets_.push_back(std::move(bucket)); }
  // A bucket of the step, if one is under way, could not even start.
  void fail();
  // Any thread may set it: all buckets of the step have come.
  const std::shared_ptr<std::atomic<bool>>& all_in() const { return all_in_; }

  // No bucket is to come any more, and returns when none is on its way.
  void end();
  // If all have come: returns when none that ends later than its values are there is on its way.
  void await_devices() const;
  // kOpen while a bucket is to come or on its way, or there is no step. Else what was added takes
  // effect, or nothing.
  Outcome try_commit();
  // Of a step all of whose buckets have come: returns when none is on its way, and what was added
  // takes effect, also if some have failed. Else false, and nothing happens.
  bool commit_all();
  // Forgets the step: nothing takes effect.
  void drop();

 private:
  void commit();

  struct ResidualChange {
    Parameter* parameter;
    bool nonzero;
  };
  State state_ = State::kIdle;
  size_t last_ = 0;  // index of the last bucket, of this step or of the one before
  std::vector<ResidualChange> residuals_;
  std::vector<Parameter*> rights_;
  std::vector<PendingBucketPtr> buckets_;
  std::shared_ptr<std::atomic<bool>> all_in_ = std::make_shared<std::atomic<bool>>();
};

// What a Session tells of its steps: bytes, relative errors, and of which step they are. A step
// that did not succeed leaves it as it was. Not thread-safe.
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

class StepStatistics {
 public:
  explicit StepStatistics(std::string codec) { now_.codec = std::move(codec); }

  // The step under way, or the last one; and the one before it.
  const CompressionReport& now() const { return now_; }
  const CompressionReport& before() const { return before_; }

  // `codec`: of this step. What "auto" chose is kept if that is still asked.
  void begin(int64_t step, std::string codec);
  void choose(std::vector<std::string> chosen, std::string reason);
  void add_bytes(double uncompressed, double sent);
  // What a parameter sends is measured: |gradient + residual|^2.
  void measure(const Parameter& parameter, double contribution);

  // The step has ended. After a success the residuals hold what it lost.
  void succeed();
  void fail();
  // What was measured of the step under way does not count.
  void drop_measurement();

 private:
  CompressionReport now_;
  CompressionReport before_;
  std::vector<const Parameter*> measured_;
  double contribution_ = 0;  // squared norms
  double total_contribution_ = 0;
  double total_loss_ = 0;
};

}  // namespace ringdist
