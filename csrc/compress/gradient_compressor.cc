#include "compress/gradient_compressor.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "codec/none.h"

namespace ringdist {

AutoCodecTuner::AutoCodecTuner(CostProbe& probe, int size, std::optional<bool> feedback, Now now)
    : feedback_(feedback),
      now_(std::move(now)),
      probe_(probe),
      state_(std::make_shared<State>(size)) {}

std::optional<AutoCodecTuner::Chosen> AutoCodecTuner::resume(ParameterTable& table) {
  std::lock_guard lock(state_->mutex);
  if (state_->codec.choice().codecs.empty()) return std::nullopt;
  state_->codec.resume();
  return use_choice(table);
}

AutoCodecTuner::Chosen AutoCodecTuner::use_choice(ParameterTable& table) {
  const auto candidates = AutoCodec::candidates();
  const CodecChoice& choice = state_->codec.choice();
  for (size_t bucket = 0; bucket < std::min(choice.codecs.size(), buckets_.size()); ++bucket)
    for (Parameter* parameter : buckets_[bucket]) {
      const Error error = table.use_for(*parameter, candidates[choice.codecs[bucket]]);
      check(!error, "a candidate that is refused");
    }
  Chosen out{{}, state_->codec.reason()};
  for (const size_t codec : choice.codecs) out.codecs.push_back(candidates[codec]);
  return out;
}

Result<std::optional<AutoCodecTuner::Chosen>> AutoCodecTuner::begin_step(ParameterTable& table) {
  std::lock_guard lock(state_->mutex);
  state_->codec.begin_step(now_());
  if (!state_->codec.due()) return std::optional<Chosen>();
  return choose(table);
}

Result<std::optional<AutoCodecTuner::Chosen>> AutoCodecTuner::choose(ParameterTable& table) {
  AutoCodec& codec = state_->codec;
  const auto view = probe_.mean(codec.view());
  if (!view.ok()) return view.error();
  if (!AutoCodec::agree(view.value())) {
    codec.put_off();
    return std::optional<Chosen>();
  }
  const auto latency = probe_.latency(memory());
  if (!latency.ok()) return latency.error();
  const auto candidates = AutoCodec::candidates();
  const auto costs = probe_.codec_seconds(candidates.first(candidates.size() - 1), latency.value(),
                                          feedback_, memory());
  if (!costs.ok()) return costs.error();
  const auto low_rank = low_rank_seconds(table, latency.value(), costs.value()[0]);
  if (!low_rank.ok()) return low_rank.error();
  const auto mean =
      probe_.mean(codec.measurement(latency.value(), costs.value(), low_rank.value()));
  if (!mean.ok()) return mean.error();
  codec.choose(mean.value());
  return std::optional(use_choice(table));
}

// Ops are timed where the gradients of the first bucket are. Only models on several devices have
// gradients elsewhere, too.
GradientMemory& AutoCodecTuner::memory() const {
  for (const auto& bucket : buckets_)
    if (!bucket.empty()) return *bucket.front()->info.memory;
  return host_memory();
}

// PowerSGD's factors travel uncompressed in two rounds, and its arithmetic touches all elements.
// Returns no values without error feedback, because PowerSGD needs it. bytes() counts contributions
// and results, so half of it, as fp32 elements, is the size of an allreduce.
Result<std::vector<double>> AutoCodecTuner::low_rank_seconds(ParameterTable& table, double latency,
                                                             double plain) {
  std::vector<double> out;
  if (!feedback_.value_or(true)) return out;
  const auto arithmetic = probe_.low_rank_seconds(memory());
  if (!arithmetic.ok()) return arithmetic.error();
  for (const auto& parameters : buckets_) {
    double seconds = 2 * latency;
    for (const Parameter* parameter : parameters) {
      const ParameterSlice slice{0, parameter->info.order.count(), parameter->info.order.rows()};
      const auto method = table.method_for(*parameter, AutoCodec::low_rank());
      check(method.ok(), "a candidate that is refused");
      BucketPlan plan;
      method.value()->add(slice, plan);
      const double sent = method.value()->bytes(slice, DType::kFloat32) / 2 / sizeof(float);
      seconds += sent * plain;
      if (!plan.low_rank.empty()) seconds += arithmetic.value().of(slice.count);
    }
    out.push_back(seconds);
  }
  return out;
}

void AutoCodecTuner::watch(size_t index, double elements, std::vector<Parameter*> parameters,
                           PendingBucket& pending) {
  if (buckets_.size() <= index) buckets_.resize(index + 1);
  buckets_[index] = std::move(parameters);
  int64_t step = 0;
  {
    std::lock_guard lock(state_->mutex);
    step = state_->codec.step();
    state_->codec.ready(index, elements, now_());
  }
  pending.on_end([state = state_, now = now_, step, index] {
    std::lock_guard lock(state->mutex);
    state->codec.done(step, index, now());
  });
}

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

// The lock is released around at_step, which is a function of the user and may wait for locks of
// its own. Buckets come one after another, so no other bucket comes meanwhile.
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

// Residuals and means of norms are linear in the loss scale, so the quotient of the scales converts
// them.
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

Result<PlannedBucket> GradientCompressor::plan(const Bucket& bucket) {
  std::lock_guard lock(mutex_);
  return planner_.plan(bucket);
}

Error GradientCompressor::add(const Bucket& bucket, const PendingBucketPtr& pending) {
  std::lock_guard lock(mutex_);
  transaction_.arrive(bucket);
  transaction_.add_bucket(pending);
  return record_.now().codec == kAuto ? watch(bucket, *pending) : Error();
}

// Reports to "auto" when the bucket is ready and when it is done.
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

// Does nothing while a bucket is in flight. After a failed step, the counter of steps goes back.
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
  // The residuals are converted to the current loss scale. The running means of norms are in it
  // already.
  const auto factor = static_cast<float>(scale_ / state.scale);
  if (!std::isnormal(factor))
    return refusal_to_compress(ErrorKind::kInvalidArgument,
                               "state['scale'] is " + std::to_string(state.scale) + ", now it is " +
                                   std::to_string(scale_) + ": too far apart for the residuals");
  // Buckets in flight write to the parameters' next residuals, so they must end before these are
  // used again.
  transaction_.end();
  finish_step();
  table_.residuals()->clear();
  for (const auto& [name, values] : state.residuals)
    if (Error error = table_.load_residual(name, values)) return error;
  record_.drop_measurement();
  steps_ = state.steps;
  table_.residuals()->scale(factor);
  return {};
}

}  // namespace ringdist
