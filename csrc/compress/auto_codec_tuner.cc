#include "compress/auto_codec_tuner.h"

#include <algorithm>

#include "base/check.h"

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

// Where ops are timed: where the gradients of the first bucket are, which are all in one place but
// in models on several devices.
GradientMemory& AutoCodecTuner::memory() const {
  for (const auto& bucket : buckets_)
    if (!bucket.empty()) return *bucket.front()->info.memory;
  return host_memory();
}

// What PowerSGD would take for each bucket: its factors travel as they are, in two rounds, and the
// arithmetic goes over all elements. None without error feedback, which it cannot do without.
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

}  // namespace ringdist
