// Plans how each gradient of a bucket travels in the current step. Also applies what comes before
// sending: clipping of spikes (GradientClipper) and error feedback. Not thread-safe.
#pragma once

#include "compress/bucket.h"
#include "compress/compression_options.h"
#include "compress/parameter_table.h"
#include "compress/step_transaction.h"

namespace ringdist {

// Makes a PlannedBucket of a Bucket. Registers changes of residuals and low-rank factors with the
// StepTransaction, and bytes and errors with the StepStatistics.
class BucketPlanner {
 public:
  // `size`: ranks in the group. The other arguments are members of a GradientCompressor, and
  // outlive the planner.
  BucketPlanner(const CompressionOptions& options, int size, ParameterTable& table,
                StepTransaction& changes, StepStatistics& record);

  // Plans a bucket of the step that StepStatistics::begin started. May change the bucket's values,
  // by clipping or by adding a residual, also before an error. Gradients of dtypes that codecs do
  // not support travel uncompressed. Errors are those of ParameterTable. A bucket with a count
  // other than the sum of its parts fails a check.
  Result<PlannedBucket> plan(const Bucket& bucket);
  // Returns the parameter of bucket.parts[part], which is added to the table if it is new.
  Result<Parameter*> find(const Bucket& bucket, size_t part);

 private:
  // The part of the bucket that belongs to one parameter.
  struct Gradient {
    DType dtype;
    Bytes values;
  };
  // Plans one part. Returns CompressionMethod::bytes for it.
  Result<double> plan_part(Parameter& parameter, ParameterSlice slice, const Gradient& gradient,
                           PlannedBucket& out);
  // Clips the gradient, if the options have a limit.
  void cut_spike(Parameter& parameter, const Gradient& gradient) const;
  // Sets the residual of the slice. The codec adds it while encoding, and the op writes the next
  // one.
  Error attach_residual(Parameter& parameter, const Gradient& gradient, ParameterSlice& slice);
  // Adds the residual to the gradient, for a method without error feedback.
  void apply_residual(Parameter& parameter, const Gradient& gradient);

  const CompressionOptions& options_;
  const double share_;  // the share of a sum that each rank sends to others, (size - 1) / size
  const CompressionMethodPtr none_;  // method for warm-up steps
  ParameterTable& table_;
  StepTransaction& transaction_;
  StepStatistics& record_;
};

}  // namespace ringdist
