#include "torch/ddp/compression.h"

#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/log.h"
#include "codec/none.h"
#include "torch/ddp/memory_order.h"
#include "torch/errors.h"
#include "torch/work/interrupts.h"

namespace ringdist {
namespace {

Bytes bytes_of(const at::Tensor& contiguous) {
  return {static_cast<std::byte*>(contiguous.data_ptr()), contiguous.nbytes()};
}

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

// Without residual.
Slice slice_of(const at::Tensor& parameter, int64_t offset) {
  return {offset, parameter.numel(), outermost_size(parameter)};
}

// DDP may leave out buckets that no rank used, the last one among them: the step is complete then
// when the backward pass ends, which it does not if something raises.
void tell_end_of_backward(std::shared_ptr<std::atomic<bool>> ended) {
  if (torch::autograd::get_current_graph_task_id() < 0)
    return;  // a bucket of join(): all will come
  torch::autograd::Engine::get_default_engine().queue_callback(
      [ended = std::move(ended)] { *ended = true; });
}

// Hears of Ctrl-C.
LinkProbe::Wait wait_in(std::shared_ptr<Communicator> group) {
  return [group = std::move(group)](const Op& op) {
    wait_in_slices(std::nullopt, [&](auto slice) { return group->wait(op, slice); });
  };
}

// Elements of the bucket: complex gradients lie there as pairs of real numbers.
int64_t count_in(const at::Tensor& buffer, const at::Tensor& parameter) {
  return parameter.numel() * (parameter.is_complex() && !buffer.is_complex() ? 2 : 1);
}

}  // namespace

Compression::Compression(c10::intrusive_ptr<ProcessGroupRing> group, CompressionOptions options,
                         AtStep at_step)
    : group_(std::move(group)),
      options_(std::move(options)),
      at_step_(std::move(at_step)),
      none_(value_of(make_treatment("codec", std::string(kNoCodec), group_->getSize(), false))),
      auto_(ever_auto(options_) ? std::make_shared<Watch>(group_->getSize()) : nullptr),
      probe_(group_->communicator(), wait_in(group_->communicator())),
      work_(group_),
      table_(group_->getSize(), options_.error_feedback) {
  check_options(options_, *group_);
  throw_if(table_.use(base_codec(options_.codec)));
  now_.codec = options_.codec;
}

void Compression::add_parameter(const at::Tensor& tensor, std::string name, ParameterRule rule) {
  std::lock_guard lock(mutex_);
  throw_if(table_.add(tensor, std::move(name), std::move(rule)));
  const Parameter& added = *value_of(table_.find(tensor));
  check_deterministic(*group_, "rules: '" + added.name + "'", added.treatment->name(),
                      *added.treatment);
}

c10::intrusive_ptr<c10::ivalue::Future> Compression::run(c10d::GradBucket& bucket) {
  try {
    return start(bucket);
  } catch (...) {
    std::lock_guard lock(mutex_);
    changes_.fail();
    throw;
  }
}

c10::intrusive_ptr<c10::ivalue::Future> Compression::start(c10d::GradBucket& bucket) {
  if (begins_step(bucket)) begin_step();
  std::lock_guard lock(mutex_);
  std::vector<LowRankInput> low_rank;
  const BucketPlan planned = plan(bucket, low_rank);
  last_bucket_ = bucket.getIndex();
  complete_ = bucket.isLast();
  if (complete_) *changes_.complete() = true;
  auto future = work_.run(bucket.getBuffer(), planned, std::move(low_rank), table_.residuals());
  changes_.add_bucket(future);
  if (now_.codec == kAuto) watch(bucket, *future);
  return future;
}

// Buckets come in order of their index, but DDP may leave out those that no rank used.
bool Compression::begins_step(const c10d::GradBucket& bucket) {
  std::lock_guard lock(mutex_);
  return complete_ || *changes_.complete() || bucket.getIndex() <= last_bucket_;
}

void Compression::begin_step() {
  int64_t step = 0;
  {
    std::lock_guard lock(mutex_);
    changes_.end();
    settle();
    step = steps_;
  }
  const auto [codec, scale] = at_step_ ? at_step_(step) : std::pair<std::string, double>();
  std::lock_guard lock(mutex_);
  if (scale != 0) use_scale(scale);
  const std::string wanted = codec_at(step, codec);
  if (wanted == kAuto && !auto_)
    refuse(ErrorKind::kInvalidArgument, "schedule(step) may say 'auto' only if codec is 'auto'");
  const bool changed = wanted != current_;
  if (changed) throw_if(table_.use(base_codec(wanted)));
  current_ = wanted;
  before_ = now_;
  now_.step = step;
  now_.codec = step < options_.warmup_steps ? std::string(kNoCodec) : current_;
  if (now_.codec != kAuto) {
    now_.chosen.clear();
    now_.reason.clear();
  }
  now_.bytes_uncompressed = now_.bytes_sent = 0;
  complete_ = false;
  ++steps_;
  changes_.begin();
  tell_end_of_backward(changes_.complete());
  if (changed && current_ == kAuto) resume_auto();
  if (now_.codec == kAuto) choose_codecs();
}

// After steps with another codec: on from the last choice, if there was one.
void Compression::resume_auto() {
  std::lock_guard lock(auto_->mutex);
  if (auto_->codec.choice().codecs.empty()) return;
  auto_->codec.resume();
  use_choice();
}

void Compression::use_choice() {
  const CodecChoice& choice = auto_->codec.choice();
  for (size_t bucket = 0; bucket < std::min(choice.codecs.size(), auto_->buckets.size()); ++bucket)
    for (Parameter* parameter : auto_->buckets[bucket])
      throw_if(table_.use_for(*parameter, AutoCodec::candidates()[choice.codecs[bucket]]));
  now_.chosen.clear();
  for (const size_t codec : choice.codecs) now_.chosen.push_back(AutoCodec::candidates()[codec]);
  now_.reason = auto_->codec.reason();
}

// All ranks come here at the same steps, before the first bucket, so these ops match.
void Compression::choose_codecs() {
  std::lock_guard lock(auto_->mutex);
  auto_->codec.begin_step(Clock::now());
  if (!auto_->codec.due()) return;
  if (!AutoCodec::agree(value_of(probe_.mean(auto_->codec.view())))) return auto_->codec.put_off();
  const double latency = value_of(probe_.latency());
  const auto candidates = AutoCodec::candidates();
  const auto costs = value_of(probe_.codec_seconds(candidates.first(candidates.size() - 1), latency,
                                                   options_.error_feedback));
  auto_->codec.choose(value_of(
      probe_.mean(auto_->codec.measurement(latency, costs, low_rank_seconds(latency, costs[0])))));
  const std::string before = now_.reason;
  use_choice();
  if (now_.reason != before && group_->getRank() == 0)
    log(LogLevel::kInfo, "auto, from step " + std::to_string(now_.step) + ": " + now_.reason);
}

// What PowerSGD would take for each bucket: its factors travel as they are, in two rounds, and the
// arithmetic goes over all elements. None without error feedback, which it cannot do without.
std::vector<double> Compression::low_rank_seconds(double latency, double plain) {
  std::vector<double> out;
  if (!options_.error_feedback.value_or(true)) return out;
  const double arithmetic = value_of(probe_.low_rank_seconds());
  for (const auto& parameters : auto_->buckets) {
    double seconds = 2 * latency;
    for (const Parameter* parameter : parameters) {
      const Slice slice = slice_of(parameter->tensor, 0);
      const TreatmentPtr treatment =
          value_of(table_.treatment_for(*parameter, AutoCodec::low_rank()));
      BucketPlan plan;
      treatment->add(slice, plan);
      const auto computed = static_cast<double>(plan.low_rank.empty() ? 0 : slice.count);
      const double sent = treatment->bytes(slice, DType::kFloat32) / 2 / sizeof(float);
      seconds += computed * arithmetic + sent * plain;
    }
    out.push_back(seconds);
  }
  return out;
}

// Tells "auto" when the bucket was ready and when it is done.
void Compression::watch(c10d::GradBucket& bucket, c10::ivalue::Future& future) {
  const size_t index = bucket.getIndex();
  int64_t step = 0;
  {
    std::lock_guard lock(auto_->mutex);
    step = auto_->codec.step();
    auto& buckets = auto_->buckets;
    if (buckets.size() <= index) buckets.resize(index + 1);
    buckets[index].clear();
    for (const at::Tensor& tensor : bucket.getParameters())
      buckets[index].push_back(value_of(table_.find(tensor)));
    auto_->codec.ready(index, static_cast<double>(bucket.getBufferRef().numel()), Clock::now());
  }
  future.addCallback([watch = auto_, step, index](c10::ivalue::Future&) {
    std::lock_guard lock(watch->mutex);
    watch->codec.done(step, index, Clock::now());
  });
}

std::string Compression::codec_at(int64_t step, const std::string& given) const {
  const auto after = options_.schedule.upper_bound(step);
  if (after != options_.schedule.begin()) return std::prev(after)->second;
  return given.empty() ? options_.codec : given;
}

void Compression::use_scale(double scale) {
  if (!std::isfinite(scale) || scale <= 0)
    refuse(ErrorKind::kInvalidArgument,
           "scaler has the scale " + std::to_string(scale) + "; it must be positive and finite");
  if (scale == scale_) return;
  table_.residuals()->scale(static_cast<float>(scale / scale_));
  for (Parameter& parameter : table_.all()) parameter.guard.scale(scale / scale_);
  scale_ = scale;
}

BucketPlan Compression::plan(c10d::GradBucket& bucket, std::vector<LowRankInput>& low_rank) {
  const at::Tensor& buffer = bucket.getBufferRef();
  const auto parameters = bucket.getParameters();
  if (!parameters.empty() && buffer.layout() != at::kStrided)
    refuse(ErrorKind::kNotSupported, "parameter '" + value_of(table_.find(parameters[0]))->name +
                                         "' has a sparse gradient; only dense ones are reduced");
  throw_if(check_tensor("compress", "the bucket of gradients", buffer, /*written=*/true));
  const DType dtype =
      value_of(to_dtype("compress", "the bucket of gradients", buffer, ReduceOp::kAvg));
  const bool fits = dtype == DType::kFloat32 || is_half(dtype);
  const double share = (group_->getSize() - 1.0) / group_->getSize();
  const bool warm = now_.step < options_.warmup_steps;
  BucketPlan plan;
  int64_t offset = 0;
  for (const at::Tensor& tensor : parameters) {
    const int64_t count = count_in(buffer, tensor);
    const double plain = 2 * share * static_cast<double>(count * buffer.element_size());
    now_.bytes_uncompressed += plain;
    now_.total_uncompressed += plain;
    double sent = plain;
    if (fits) {
      Parameter& parameter = *value_of(table_.find(tensor));
      const Treatment& treatment = warm ? *none_ : *parameter.treatment;
      Slice slice = slice_of(tensor, offset);
      slice.count = count;
      const bool feedback = treatment.feedback_of(slice);
      const ResidualSpan residual =
          prepare(parameter, feedback, dtype, buffer.narrow(0, offset, count));
      if (feedback) slice.residual = parameter.residual->values.data();
      slice.next = residual.to;
      treatment.add(slice, plan);
      if (plan.low_rank.size() > low_rank.size()) {
        low_rank.push_back(low_rank_input(parameter, plan.low_rank.back()));
        changes_.add_right(parameter);
      }
      sent = share * treatment.bytes(slice, dtype);
    }
    now_.bytes_sent += sent;
    now_.total_sent += sent;
    offset += count;
  }
  check(offset == buffer.numel(), "a bucket that is not the sum of its parameters");
  return plan;
}

// What happens to a gradient before it is encoded; returns what it is to be encoded with.
ResidualSpan Compression::prepare(Parameter& parameter, bool feedback, DType dtype,
                                  const at::Tensor& gradient) {
  const Bytes values = bytes_of(gradient);
  if (options_.guard > 0) {
    const double norm = std::sqrt(squared_norm(dtype, values, {}));
    const double factor = parameter.guard.factor(norm, options_.guard);
    if (factor != 1) gradient.mul_(factor);
  }
  if (feedback) throw_if(table_.provide_residual(parameter));
  Residual* residual = parameter.residual;
  if (residual == nullptr) return {};
  if (!feedback) {
    if (!residual->owed || all_zero(dtype, values)) return {};
    const ResidualSpan both = residual->begin();
    pay(dtype, values, both);
    changes_.add_residual(
        parameter, !all_zero(DType::kFloat32, std::as_bytes(std::span(both.to, both.count))));
    return {};
  }
  changes_.add_residual(parameter, true);
  const bool measures = options_.measure_every > 0 && now_.step % options_.measure_every == 0;
  // A parameter without a gradient sends zeros: it loses nothing.
  if (measures && !all_zero(dtype, values)) {
    measured_.push_back(&parameter);
    contribution_ += squared_norm(dtype, values, residual->values);
  }
  return residual->begin();
}

// Once no bucket is on its way: the step has changed what it was to change, or nothing.
void Compression::settle() {
  if (!changes_.pending()) return;
  switch (changes_.settle()) {
    case StepChanges::Outcome::kOpen:
      return;
    case StepChanges::Outcome::kSucceeded:
      complete_ = true;
      return finish_measurement();
    case StepChanges::Outcome::kFailed:
      break;
  }
  measured_.clear();
  contribution_ = 0;
  now_ = before_;
  --steps_;
  complete_ = true;
}

void Compression::finish_measurement() {
  if (measured_.empty()) return;
  double loss = 0;
  for (const Parameter* parameter : measured_) loss += parameter->residual->squared_norm();
  measured_.clear();
  const double contribution = std::exchange(contribution_, 0);
  if (contribution == 0 || !std::isfinite(contribution) || !std::isfinite(loss)) return;
  total_contribution_ += contribution;
  total_loss_ += loss;
  now_.measured_step = now_.step;
  now_.relative_error = std::sqrt(loss / contribution);
  now_.total_relative_error = std::sqrt(total_loss_ / total_contribution_);
}

CompressionReport Compression::report() {
  std::lock_guard lock(mutex_);
  settle();
  CompressionReport out = complete_ && !changes_.pending() ? now_ : before_;
  out.residual_norm = unscaled_norm();
  return out;
}

double Compression::unscaled_norm() {
  return std::sqrt(table_.residuals()->squared_norm()) / scale_;
}

double Compression::residual_norm() {
  std::lock_guard lock(mutex_);
  settle();
  return unscaled_norm();
}

CompressionState Compression::state() {
  std::lock_guard lock(mutex_);
  settle();
  return {steps_ - (changes_.pending() ? 1 : 0), scale_, table_.saved()};
}

void Compression::load(const CompressionState& state) {
  std::lock_guard lock(mutex_);
  for (const auto& [name, values] : state.residuals)
    throw_if(table_.check_residual(name, values.numel()));
  // Into today's loss scale; the guard's means are in it already.
  const auto factor = static_cast<float>(scale_ / state.scale);
  if (!std::isnormal(factor))
    refuse(ErrorKind::kInvalidArgument, "state['scale'] is " + std::to_string(state.scale) +
                                            ", now it is " + std::to_string(scale_) +
                                            ": too far apart for the residuals");
  changes_ = {};
  table_.residuals()->clear();
  for (const auto& [name, values] : state.residuals) throw_if(table_.load_residual(name, values));
  measured_.clear();
  contribution_ = 0;
  steps_ = state.steps;
  complete_ = true;
  table_.residuals()->scale(factor);
}

}  // namespace ringdist
