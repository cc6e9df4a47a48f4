#include "compress/bucket_planner.h"

#include <cmath>
#include <span>

#include "base/check.h"
#include "codec/none.h"

namespace ringdist {
namespace {

// Returns the right factors of a matrix. The first approximation of a parameter begins with noise,
// which is the same on all ranks; later ones begin with the last factor.
LowRankInput low_rank_input(Parameter& parameter, const BucketPlan::LowRank& matrix) {
  GradientMemory& memory = *parameter.info.memory;
  const auto count = static_cast<size_t>(matrix.shape.right());
  // The size has changed. New buffers are needed, because ops in flight may still use the old ones.
  // FloatBuffers share their memory, so the plan keeps it alive.
  if (parameter.right.size() != count) {
    parameter.right = FloatBuffer(memory, count);
    parameter.right.assign(first_right(matrix.shape));
  }
  if (parameter.next_right.size() != count) parameter.next_right = FloatBuffer(memory, count);
  return {matrix, parameter.right, parameter.next_right};
}

bool takes_codecs(DType dtype) { return dtype == DType::kFloat32 || is_half(dtype); }

CompressionMethodPtr none_method(int size) {
  const auto none = make_compression_method("codec", std::string(kNoCodec), size, false);
  check(none.ok(), "codec none is gone");
  return none.value();
}

}  // namespace

BucketPlanner::BucketPlanner(const CompressionOptions& options, int size, ParameterTable& table,
                             StepTransaction& changes, StepStatistics& record)
    : options_(options),
      share_((size - 1.0) / size),
      none_(none_method(size)),
      table_(table),
      transaction_(changes),
      record_(record) {}

Result<Parameter*> BucketPlanner::find(const Bucket& bucket, size_t part) {
  return table_.find(bucket.parts[part].key, [&] { return bucket.describe(part); });
}

// An allreduce moves each element twice, as contribution and as result, so a rank sends twice its
// share. bytes() counts both, and is multiplied by the share once.
Result<PlannedBucket> BucketPlanner::plan(const Bucket& bucket) {
  PlannedBucket out;
  out.keep_alive = table_.residuals();
  const auto element = static_cast<int64_t>(dtype_size(bucket.dtype));
  int64_t offset = 0;
  for (size_t i = 0; i < bucket.parts.size(); ++i) {
    const int64_t count = bucket.parts[i].count;
    const double plain = 2 * share_ * static_cast<double>(count * element);
    double sent = plain;
    if (takes_codecs(bucket.dtype)) {
      const auto found = find(bucket, i);
      if (!found.ok()) return found.error();
      const Bytes values = bucket.values.subspan(static_cast<size_t>(offset * element),
                                                 static_cast<size_t>(count * element));
      const auto bytes =
          plan_part(*found.value(), {offset, count, found.value()->info.order.rows()},
                    {bucket.dtype, values}, out);
      if (!bytes.ok()) return bytes.error();
      sent = share_ * bytes.value();
    }
    record_.add_bytes(plain, sent);
    offset += count;
  }
  check(offset == bucket.count, "a bucket that is not the sum of its parameters");
  return out;
}

// The method is "none" in warm-up steps.
Result<double> BucketPlanner::plan_part(Parameter& parameter, ParameterSlice slice,
                                        const Gradient& gradient, PlannedBucket& out) {
  const bool warm = record_.now().step < options_.warmup_steps;
  const CompressionMethod& method = warm ? *none_ : *parameter.method;
  cut_spike(parameter, gradient);
  if (!method.feedback_of(slice))
    apply_residual(parameter, gradient);
  else if (Error error = attach_residual(parameter, gradient, slice))
    return error;
  method.add(slice, out.plan);
  if (out.plan.low_rank.size() > out.low_rank.size()) {
    out.low_rank.push_back(low_rank_input(parameter, out.plan.low_rank.back()));
    transaction_.add_right(parameter);
  }
  return method.bytes(slice, gradient.dtype);
}

// The norm is that of the gradient without its residual. A residual is not a spike, and must not be
// cut.
void BucketPlanner::cut_spike(Parameter& parameter, const Gradient& gradient) const {
  if (options_.guard <= 0) return;
  GradientMemory& memory = *parameter.info.memory;
  const double norm = std::sqrt(memory.squared_norm(gradient.dtype, gradient.values, nullptr));
  const double factor = parameter.guard.factor(norm, options_.guard);
  if (factor != 1) memory.scale(gradient.dtype, gradient.values, factor);
}

// The encoder adds the residual. The next residual goes to another buffer, so that a failed step
// changes nothing.
Error BucketPlanner::attach_residual(Parameter& parameter, const Gradient& gradient,
                                     ParameterSlice& slice) {
  if (Error error = table_.provide_residual(parameter)) return error;
  Residual& residual = *parameter.residual;
  transaction_.add_residual(parameter, true);
  const int64_t every = options_.measure_every;
  // A parameter without a gradient sends zeros and loses nothing, so it does not count.
  GradientMemory& memory = *parameter.info.memory;
  if (every > 0 && record_.now().step % every == 0 &&
      !memory.all_zero(gradient.dtype, gradient.values))
    record_.measure(parameter,
                    memory.squared_norm(gradient.dtype, gradient.values, residual.values.data()));
  slice.residual = residual.values.data();
  slice.next = residual.begin().to;
  return {};
}

// Gradients of zeros stay as they are: a rank without a gradient contributes nothing, and keeps its
// residual.
void BucketPlanner::apply_residual(Parameter& parameter, const Gradient& gradient) {
  Residual* const residual = parameter.residual;
  if (residual == nullptr || !residual->nonzero) return;
  GradientMemory& memory = *parameter.info.memory;
  if (memory.all_zero(gradient.dtype, gradient.values)) return;
  const ResidualSpan both = residual->begin();
  memory.apply_residual(gradient.dtype, gradient.values, both);
  transaction_.add_residual(
      parameter, !memory.all_zero(DType::kFloat32, std::as_bytes(std::span(both.to, both.count))));
}

}  // namespace ringdist
