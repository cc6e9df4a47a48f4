#include "compress/auto_codec.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <ranges>
#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

// DDP rebuilds its buckets after the first step; caches and connections are warm after some more.
constexpr int64_t kSkippedSteps = 3;
// Step before which the first choice is due. It is early, because an uncompressed step takes
// seconds on a slow link.
constexpr int64_t kFirstChoice = 4;
// The same for the second choice, which has data of more than one step.
constexpr int64_t kSecondChoice = 12;
// Steps between later choices.
constexpr int64_t kEvery = 100;
// Limit of recorded steps, for the case that no step completes because some bucket never comes.
constexpr size_t kMostSteps = 2 * kEvery;

// Ordered from gentle to harsh. Codecs that are coarser than int4 cost accuracy at equal steps
// (docs/how-to/choose-a-codec.md), so users get those only by an explicit choice.
const std::array<std::string, 5> kCandidates{"none", "bf16", "int8", "int4", "powersgd:4"};
constexpr size_t kCodecs = kCandidates.size() - 1;  // all but PowerSGD

// Returns the median of the values, or the upper one of two; 0 if there are none.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::span<const std::string> AutoCodec::candidates() { return kCandidates; }

bool AutoCodec::Step::complete() const {
  return !buckets.empty() && begun->passed() && std::ranges::all_of(buckets, [](const Bucket& b) {
    return b.ready && b.done && b.ready->passed() && b.done->passed();
  });
}

// The average of the last bucket is subtracted, because exposed_seconds() adds the predicted one.
double AutoCodec::Step::length() const {
  const Bucket& end = buckets.back();
  return next->since(*begun) - std::max(0.0, end.done->since(*end.ready));
}

AutoCodec::AutoCodec(int size) : size_(size), next_(kFirstChoice) {}

void AutoCodec::begin_step(TimeMarkerPtr now) {
  if (!steps_.empty()) steps_.back().next = now;
  if (count_ == kSkippedSteps || steps_.size() > kMostSteps) steps_.clear();
  steps_.push_back({{}, count_, std::move(now), nullptr});
  ++count_;
}

bool AutoCodec::due() const { return size_ > 1 && step() >= next_; }

void AutoCodec::ready(size_t bucket, double elements, TimeMarkerPtr now) {
  auto& buckets = steps_.back().buckets;
  if (buckets.size() <= bucket) buckets.resize(bucket + 1);
  buckets[bucket] = {elements, std::move(now), nullptr};
}

void AutoCodec::done(int64_t step, size_t bucket, const TimeMarkerPtr& now) {
  for (Step& one : steps_)
    if (one.number == step && bucket < one.buckets.size()) one.buckets[bucket].done = now;
}

const AutoCodec::Step* AutoCodec::seen() const {
  const auto it = std::ranges::find(steps_, seen_, &Step::number);
  return it == steps_.end() ? nullptr : &*it;
}

void AutoCodec::resume() {
  steps_.clear();
  next_ = std::min(next_, count_ + kFirstChoice);
}

// The values are: 1 if there is a complete step, the number of its buckets, and that number
// squared.
std::vector<double> AutoCodec::view() {
  seen_ = -1;
  for (const Step& step : std::views::reverse(steps_))
    if (step.complete()) {
      seen_ = step.number;
      break;
    }
  const Step* last = seen();
  const double count = last != nullptr ? static_cast<double>(last->buckets.size()) : 0;
  return {last != nullptr ? 1.0 : 0.0, count, count * count};
}

bool AutoCodec::agree(std::span<const double> mean) {
  return mean[0] == 1 && mean[2] == mean[1] * mean[1];  // the variance of the counts is zero
}

size_t AutoCodec::codec_of(size_t bucket) const {
  return bucket < choice_.codecs.size() ? choice_.codecs[bucket] : 0;
}

// The values are: latency, length of a step, each bucket's ready time, each codec's cost, and each
// bucket's seconds with PowerSGD.
std::vector<double> AutoCodec::measurement(double latency, std::span<const double> costs,
                                           std::span<const double> low_rank) const {
  check(costs.size() == kCodecs, "costs of other codecs than the candidates");
  const Step* last = seen();
  const size_t count = last != nullptr ? last->buckets.size() : 0;
  std::vector<double> lengths;
  std::vector<std::vector<double>> ready(count);
  for (const Step& step : steps_) {
    // complete() queries the driver for each bucket, so it is called once
    if (!step.complete()) continue;
    if (step.next && step.next->passed()) lengths.push_back(step.length());
    if (step.buckets.size() != count) continue;
    for (size_t i = 0; i < count; ++i)
      ready[i].push_back(step.buckets[i].ready->since(*step.begun));
  }
  std::vector<double> out{latency, median(std::move(lengths))};
  for (std::vector<double>& times : ready) out.push_back(median(std::move(times)));
  out.insert(out.end(), costs.begin(), costs.end());
  for (size_t i = 0; i < count; ++i)
    out.push_back(i < low_rank.size() ? low_rank[i] : std::numeric_limits<double>::infinity());
  return out;
}

const CodecChoice& AutoCodec::choose(std::span<const double> mean) {
  const Step* complete = seen();
  check(complete != nullptr, "a choice before any whole step");
  const std::vector<Bucket> buckets = complete->buckets;
  check(mean.size() == 2 + 2 * buckets.size() + kCodecs,
        "a measurement of other buckets than ours");
  // The shortest step is used, because other work between steps, such as an evaluation, must not
  // count.
  shortest_step_ = shortest_step_ > 0 ? std::min(shortest_step_, mean[1]) : mean[1];
  BackwardPass pass;
  pass.latency = mean[0];
  for (size_t i = 0; i < buckets.size(); ++i)
    pass.buckets.push_back({mean[2 + i], buckets[i].elements});
  pass.end = mean[1 + buckets.size()];
  pass.step = shortest_step_;
  std::vector<CodecCost> costs;
  const auto rest = mean.subspan(2 + buckets.size());
  for (size_t i = 0; i < kCodecs; ++i) costs.push_back({kCandidates[i], rest[i], {}, false});
  costs.push_back({low_rank(), 0, {rest.begin() + kCodecs, rest.end()}, true});
  choice_ = choose_codecs(pass, costs);
  reason_ = explain(choice_, pass, costs);
  next_ = step() < kSecondChoice ? kSecondChoice : step() + kEvery;
  steps_.erase(steps_.begin(), steps_.end() - 1);  // the step that has just begun stays
  return choice_;
}

}  // namespace ringdist
