#include "compress/session.h"

#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "codec/none.h"
#include "kernel/cast.h"

namespace ringdist {
namespace {

// Where the approximation of a parameter begins: the last one, or the same noise on all ranks.
LowRankInput low_rank_input(Parameter& parameter, const BucketPlan::LowRank& matrix) {
  // Of another size: ops in flight may still have the old ones.
  for (auto* factor : {&parameter.right, &parameter.next_right})
    if (!*factor || std::ssize(**factor) != matrix.shape.right())
      *factor = std::make_shared<std::vector<float>>();
  LowRankReducer::provide_right(matrix.shape, *parameter.right);
  LowRankReducer::provide_right(matrix.shape, *parameter.next_right);
  return {matrix, parameter.right, parameter.next_right};
}

bool takes_codecs(DType dtype) { return dtype == DType::kFloat32 || is_half(dtype); }

}  // namespace

Result<std::unique_ptr<Session>> Session::create(CostProbe& probe, CompressionGroup group,
                                                 CompressionOptions options, SessionOwner owner) {
  if (Error error = check_options(options, group)) return error;
  const auto none = make_treatment("codec", std::string(kNoCodec), group.size, false);
  check(none.ok(), "codec none is gone");
  std::unique_ptr<Session> out(
      new Session(probe, group, std::move(options), std::move(owner), none.value()));
  std::lock_guard lock(out->mutex_);
  if (Error error = out->table_.use(base_codec(out->options_.codec))) return error;
  return out;
}

Session::Session(CostProbe& probe, CompressionGroup group, CompressionOptions options,
                 SessionOwner owner, TreatmentPtr none)
    : group_(group),
      options_(std::move(options)),
      owner_(std::move(owner)),
      none_(std::move(none)),
      auto_(ever_auto(options_) ? std::make_unique<AutoChoice>(probe, group_.size,
                                                               options_.error_feedback, owner_.now)
                                : nullptr),
      table_(group.size, options_.error_feedback, group.min_compressed, owner_.warn),
      record_(options_.codec) {}

Error Session::add_parameter(ParameterInfo info, std::string name, ParameterRule rule) {
  std::lock_guard lock(mutex_);
  const auto added = table_.add(std::move(info), std::move(name), std::move(rule));
  if (!added.ok()) return added.error();
  const Treatment& treatment = *added.value()->treatment;
  return check_deterministic(group_, "rules: '" + added.value()->name + "'", treatment.name(),
                             treatment);
}

void Session::fail() {
  std::lock_guard lock(mutex_);
  changes_.fail();
}

Result<std::string> Session::name_of(ParameterKey key,
                                     const std::function<ParameterInfo()>& describe) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(key, describe);
  if (!found.ok()) return found.error();
  return found.value()->name;
}

Error Session::begin(size_t index) {
  int64_t step = 0;
  {
    std::lock_guard lock(mutex_);
    if (!changes_.begins_with(index)) return {};
    changes_.end();
    settle();
    step = steps_;
  }
  const auto [codec, scale] =
      owner_.at_step ? owner_.at_step(step) : std::pair<std::string, double>();
  std::lock_guard lock(mutex_);
  return begin_step(step, codec_at(options_, step, codec), scale);
}

Error Session::begin_step(int64_t step, const std::string& wanted, double scale) {
  if (scale != 0)
    if (Error error = use_scale(scale)) return error;
  if (wanted == kAuto && !auto_)
    return refusal_to_compress(ErrorKind::kInvalidArgument,
                               "schedule(step) may say 'auto' only if codec is 'auto'");
  const bool changed = wanted != current_;
  if (changed)
    if (Error error = table_.use(base_codec(wanted))) return error;
  current_ = wanted;
  record_.begin(step, step < options_.warmup_steps ? std::string(kNoCodec) : current_);
  ++steps_;
  changes_.begin();
  owner_.watch_pass(changes_.all_in());
  return auto_ ? begin_auto(changed && current_ == kAuto) : Error();
}

Error Session::begin_auto(bool resumes) {
  if (resumes)
    if (auto chosen = auto_->resume(table_))
      record_.choose(std::move(chosen->codecs), std::move(chosen->reason));
  if (record_.now().codec != kAuto) return {};
  auto begun = auto_->begin_step(table_);
  if (!begun.ok()) return begun.error();
  auto& chosen = begun.value();
  if (!chosen) return {};
  const std::string before = record_.now().reason;
  record_.choose(std::move(chosen->codecs), std::move(chosen->reason));
  if (record_.now().reason != before && group_.rank == 0)
    log(LogLevel::kInfo,
        "auto, from step " + std::to_string(record_.now().step) + ": " + record_.now().reason);
  return {};
}

Error Session::use_scale(double scale) {
  if (!std::isfinite(scale) || scale <= 0)
    return refusal_to_compress(
        ErrorKind::kInvalidArgument,
        "scaler has the scale " + std::to_string(scale) + "; it must be positive and finite");
  if (scale == scale_) return {};
  table_.residuals()->scale(static_cast<float>(scale / scale_));
  for (Parameter& parameter : table_.all()) parameter.guard.scale(scale / scale_);
  scale_ = scale;
  return {};
}

Error Session::run(const Bucket& bucket, const StartBucket& start) {
  std::lock_guard lock(mutex_);
  PlannedBucket planned;
  planned.keep_alive = table_.residuals();
  if (Error error = plan(bucket, planned)) return error;
  changes_.arrive(bucket);
  const PendingBucketPtr pending = start(std::move(planned));
  changes_.add_bucket(pending);
  return record_.now().codec == kAuto ? watch(bucket, *pending) : Error();
}

// Tells "auto" when the bucket was ready and when it is done.
Error Session::watch(const Bucket& bucket, PendingBucket& pending) {
  std::vector<Parameter*> parameters;
  for (size_t i = 0; i < bucket.parts.size(); ++i) {
    const auto found = find(bucket, i);
    if (!found.ok()) return found.error();
    parameters.push_back(found.value());
  }
  auto_->watch(bucket.index, static_cast<double>(bucket.count), std::move(parameters), pending);
  return {};
}

Result<Parameter*> Session::find(const Bucket& bucket, size_t part) {
  return table_.find(bucket.parts[part].key, [&] { return bucket.describe(part); });
}

Error Session::plan(const Bucket& bucket, PlannedBucket& out) {
  const bool fits = takes_codecs(bucket.dtype);
  const double share = (group_.size - 1.0) / group_.size;
  const auto element = static_cast<int64_t>(dtype_size(bucket.dtype));
  int64_t offset = 0;
  for (size_t i = 0; i < bucket.parts.size(); ++i) {
    const int64_t count = bucket.parts[i].count;
    const double plain = 2 * share * static_cast<double>(count * element);
    double sent = plain;
    if (fits) {
      const auto found = find(bucket, i);
      if (!found.ok()) return found.error();
      const Slice slice{offset, count, found.value()->info.order.rows()};
      const Bytes gradient = bucket.values.subspan(static_cast<size_t>(offset * element),
                                                   static_cast<size_t>(count * element));
      const auto bytes = plan_part(*found.value(), slice, bucket.dtype, gradient, out);
      if (!bytes.ok()) return bytes.error();
      sent = share * bytes.value();
    }
    record_.add_bytes(plain, sent);
    offset += count;
  }
  check(offset == bucket.count, "a bucket that is not the sum of its parameters");
  return {};
}

// Returns Treatment::bytes.
Result<double> Session::plan_part(Parameter& parameter, Slice slice, DType dtype, Bytes gradient,
                                  PlannedBucket& out) {
  const bool warm = record_.now().step < options_.warmup_steps;
  const Treatment& treatment = warm ? *none_ : *parameter.treatment;
  const bool feedback = treatment.feedback_of(slice);
  const auto residual = prepare(parameter, feedback, dtype, gradient);
  if (!residual.ok()) return residual.error();
  if (feedback) slice.residual = parameter.residual->values.data();
  slice.next = residual.value().to;
  treatment.add(slice, out.plan);
  if (out.plan.low_rank.size() > out.low_rank.size()) {
    out.low_rank.push_back(low_rank_input(parameter, out.plan.low_rank.back()));
    changes_.add_right(parameter);
  }
  return treatment.bytes(slice, dtype);
}

// What happens to a gradient before it is encoded; returns what it is to be encoded with.
Result<ResidualSpan> Session::prepare(Parameter& parameter, bool feedback, DType dtype,
                                      Bytes gradient) {
  if (options_.guard > 0) {
    const double norm = std::sqrt(squared_norm(dtype, gradient, {}));
    const double factor = parameter.guard.factor(norm, options_.guard);
    if (factor != 1) scale_gradient(dtype, gradient, factor);
  }
  if (feedback)
    if (Error error = table_.provide_residual(parameter)) return error;
  Residual* residual = parameter.residual;
  if (residual == nullptr) return ResidualSpan();
  if (!feedback) {
    if (!residual->owed || all_zero(dtype, gradient)) return ResidualSpan();
    const ResidualSpan both = residual->begin();
    pay(dtype, gradient, both);
    changes_.add_residual(
        parameter, !all_zero(DType::kFloat32, std::as_bytes(std::span(both.to, both.count))));
    return ResidualSpan();
  }
  changes_.add_residual(parameter, true);
  const int64_t every = options_.measure_every;
  // A parameter without a gradient sends zeros: it loses nothing.
  if (every > 0 && record_.now().step % every == 0 && !all_zero(dtype, gradient))
    record_.measure(parameter, squared_norm(dtype, gradient, residual->values));
  return residual->begin();
}

// Once no bucket is on its way: the step has changed what it was to change, or nothing.
void Session::settle() {
  switch (changes_.settle()) {
    case StepChanges::Outcome::kOpen:
      return;
    case StepChanges::Outcome::kSucceeded:
      return record_.succeed();
    case StepChanges::Outcome::kFailed:
      record_.fail();
      --steps_;
  }
}

CompressionReport Session::report() {
  std::lock_guard lock(mutex_);
  settle();
  CompressionReport out =
      changes_.state() == StepChanges::State::kIdle ? record_.now() : record_.before();
  out.residual_norm = unscaled_norm();
  return out;
}

double Session::unscaled_norm() { return std::sqrt(table_.residuals()->squared_norm()) / scale_; }

double Session::residual_norm() {
  std::lock_guard lock(mutex_);
  settle();
  return unscaled_norm();
}

CompressionState Session::state() {
  std::lock_guard lock(mutex_);
  settle();
  const bool open = changes_.state() != StepChanges::State::kIdle;
  return {steps_ - (open ? 1 : 0), scale_, table_.saved()};
}

Error Session::load(const CompressionState& state) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, values] : state.residuals)
    if (Error error = table_.check_residual(name, std::ssize(values))) return error;
  // Into today's loss scale; the guard's means are in it already.
  const auto factor = static_cast<float>(scale_ / state.scale);
  if (!std::isnormal(factor))
    return refusal_to_compress(ErrorKind::kInvalidArgument,
                               "state['scale'] is " + std::to_string(state.scale) + ", now it is " +
                                   std::to_string(scale_) + ": too far apart for the residuals");
  changes_.drop();
  table_.residuals()->clear();
  for (const auto& [name, values] : state.residuals)
    if (Error error = table_.load_residual(name, values)) return error;
  record_.drop_measurement();
  steps_ = state.steps;
  table_.residuals()->scale(factor);
  return {};
}

}  // namespace ringdist
