#include "compress/gradient_compressor.h"

#include <cmath>

#include "base/log.h"
#include "codec/none.h"

namespace ringdist {

Result<std::unique_ptr<GradientCompressor>> GradientCompressor::create(
    CostProbe& probe, CompressionGroup group, CompressionOptions options,
    GradientCompressorDelegate owner) {
  if (Error error = check_options(options, group)) return error;
  std::unique_ptr<GradientCompressor> out(
      new GradientCompressor(probe, group, std::move(options), std::move(owner)));
  std::lock_guard lock(out->mutex_);
  if (Error error = out->table_.use(base_codec(out->options_.codec))) return error;
  return out;
}

GradientCompressor::GradientCompressor(CostProbe& probe, CompressionGroup group,
                                       CompressionOptions options, GradientCompressorDelegate owner)
    : group_(group),
      options_(std::move(options)),
      owner_(std::move(owner)),
      auto_(ever_auto(options_) ? std::make_unique<AutoCodecTuner>(
                                      probe, group_.size, options_.error_feedback, owner_.now)
                                : nullptr),
      table_(group.size, options_.error_feedback, group.min_compressed, owner_.warn),
      record_(options_.codec),
      planner_(options_, group_.size, table_, transaction_, record_) {}

Error GradientCompressor::add_parameter(ParameterInfo info, std::string name, ParameterRule rule) {
  std::lock_guard lock(mutex_);
  const auto added = table_.add(std::move(info), std::move(name), std::move(rule));
  if (!added.ok()) return added.error();
  const CompressionMethod& method = *added.value()->method;
  return check_deterministic(group_, "rules: '" + added.value()->name + "'", method.name(), method);
}

void GradientCompressor::fail() {
  std::lock_guard lock(mutex_);
  transaction_.fail();
}

Result<std::string> GradientCompressor::name_of(ParameterKey key,
                                                const std::function<ParameterInfo()>& describe) {
  std::lock_guard lock(mutex_);
  const auto found = table_.find(key, describe);
  if (!found.ok()) return found.error();
  return found.value()->name;
}

Error GradientCompressor::begin(size_t index) {
  int64_t step = 0;
  {
    std::lock_guard lock(mutex_);
    if (!transaction_.begins_with(index)) return {};
    transaction_.end();
    finish_step();
    step = steps_;
  }
  const auto [codec, scale] =
      owner_.at_step ? owner_.at_step(step) : std::pair<std::string, double>();
  std::lock_guard lock(mutex_);
  return begin_step(step, codec_at(options_, step, codec), scale);
}

Error GradientCompressor::begin_step(int64_t step, const std::string& wanted, double scale) {
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
  transaction_.begin();
  owner_.watch_pass(transaction_.all_in());
  return auto_ ? begin_auto(changed && current_ == kAuto) : Error();
}

Error GradientCompressor::begin_auto(bool resumes) {
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

Error GradientCompressor::use_scale(double scale) {
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

Error GradientCompressor::run(const Bucket& bucket, const StartBucket& start) {
  std::lock_guard lock(mutex_);
  auto planned = planner_.plan(bucket);
  if (!planned.ok()) return planned.error();
  transaction_.arrive(bucket);
  const PendingBucketPtr pending = start(std::move(planned.value()));
  transaction_.add_bucket(pending);
  return record_.now().codec == kAuto ? watch(bucket, *pending) : Error();
}

// Tells "auto" when the bucket was ready and when it is done.
Error GradientCompressor::watch(const Bucket& bucket, PendingBucket& pending) {
  std::vector<Parameter*> parameters;
  for (size_t i = 0; i < bucket.parts.size(); ++i) {
    const auto found = planner_.find(bucket, i);
    if (!found.ok()) return found.error();
    parameters.push_back(found.value());
  }
  auto_->watch(bucket.index, static_cast<double>(bucket.count), std::move(parameters), pending);
  return {};
}

// Once no bucket is on its way: the step has changed what it was to change, or nothing.
void GradientCompressor::finish_step() {
  transaction_.await_devices();
  switch (transaction_.try_commit()) {
    case StepTransaction::Outcome::kOpen:
      return;
    case StepTransaction::Outcome::kSucceeded:
      return record_.succeed();
    case StepTransaction::Outcome::kFailed:
      record_.fail();
      --steps_;
  }
}

CompressionReport GradientCompressor::report() {
  std::lock_guard lock(mutex_);
  finish_step();
  CompressionReport out =
      transaction_.state() == StepTransaction::State::kIdle ? record_.now() : record_.before();
  out.residual_norm = unscaled_norm();
  return out;
}

double GradientCompressor::unscaled_norm() {
  return std::sqrt(table_.residuals()->squared_norm()) / scale_;
}

double GradientCompressor::residual_norm() {
  std::lock_guard lock(mutex_);
  finish_step();
  return unscaled_norm();
}

CompressionState GradientCompressor::state() {
  std::lock_guard lock(mutex_);
  finish_step();
  const bool open = transaction_.state() != StepTransaction::State::kIdle;
  return {steps_ - (open ? 1 : 0), scale_, table_.saved()};
}

CompressionState GradientCompressor::state_if_committed() {
  {
    std::lock_guard lock(mutex_);
    if (transaction_.commit_all()) record_.succeed();
  }
  return state();
}

Error GradientCompressor::load(const CompressionState& state) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, values] : state.residuals)
    if (Error error = table_.check_residual(name, std::ssize(values))) return error;
  // Into today's loss scale; the guard's means are in it already.
  const auto factor = static_cast<float>(scale_ / state.scale);
  if (!std::isnormal(factor))
    return refusal_to_compress(ErrorKind::kInvalidArgument,
                               "state['scale'] is " + std::to_string(state.scale) + ", now it is " +
                                   std::to_string(scale_) + ": too far apart for the residuals");
  transaction_.drop();
  table_.residuals()->clear();
  for (const auto& [name, values] : state.residuals)
    if (Error error = table_.load_residual(name, values)) return error;
  record_.drop_measurement();
  steps_ = state.steps;
  table_.residuals()->scale(factor);
  return {};
}

}  // namespace ringdist
