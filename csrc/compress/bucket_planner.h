// How each gradient of a bucket travels in the step under way, and what happens to it before: the
// guard, and what is owed. Not thread-safe.
#pragma once

#include "compress/bucket.h"
#include "compress/compression_options.h"
#include "compress/parameter_table.h"
#include "compress/step_transaction.h"

namespace ringdist {

class BucketPlanner {
 public:
  // Parts of one Session, in a group of `size`: they outlive it.
  BucketPlanner(const CompressionOptions& options, int size, ParameterTable& table,
                StepTransaction& changes, StepStatistics& record);

  // For the step that the record has begun. dtypes that no codec takes go uncompressed. Errors as
  // ParameterTable has them.
  Result<PlannedBucket> plan(const Bucket& bucket);
  Result<Parameter*> find(const Bucket& bucket, size_t part);

 private:
  // Part of a bucket.
  struct Gradient {
    DType dtype;
    Bytes values;
  };
  Result<double> plan_part(Parameter& parameter, ParameterSlice slice, const Gradient& gradient,
                           PlannedBucket& out);
  void cut_spike(Parameter& parameter, const Gradient& gradient) const;
  Error attach_residual(Parameter& parameter, const Gradient& gradient, ParameterSlice& slice);
  void apply_residual(Parameter& parameter, const Gradient& gradient);

  const CompressionOptions& options_;
  const double share_;  // of a sum that a rank sends to the others
  const CompressionMethodPtr none_;
  ParameterTable& table_;
  StepTransaction& transaction_;
  StepStatistics& record_;
};

}  // namespace ringdist
