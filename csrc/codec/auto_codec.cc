#include "codec/auto_codec.h"

#include <algorithm>
#include <array>

#include "base/check.h"

namespace ringdist {
namespace {

// DDP rebuilds its buckets after the first step; caches and connections are warm after some more.
constexpr int64_t kSkippedSteps = 3;
constexpr int64_t kFirstChoice = 8;
constexpr int64_t kEvery = 100;

// From gentle to harsh. What is coarser than int4 costs accuracy at equal steps
// (docs/compression.md), which nobody should get without asking.
const std::array<std::string, 4> kCandidates{"none", "bf16", "int8", "int4"};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::span<const std::string> AutoCodec::candidates() { return kCandidates; }

bool AutoCodec::Step::complete() const {
  return !buckets.empty() && std::all_of(buckets.begin(), buckets.end(),
                                         [](const Bucket& bucket) { return bucket.done > 0; });
}

void AutoCodec::begin_step(TimePoint now) {
  if (!steps_.empty() && count_ > 0) steps_.back().gap = seconds(now - begun_);
  if (count_ == kSkippedSteps) steps_.clear();
  begun_ = now;
  steps_.emplace_back();
  ++count_;
}

bool AutoCodec::due() const {
  const int64_t step = count_ - 1;
  return size_ > 1 && step >= kFirstChoice && (step - kFirstChoice) % kEvery == 0;
}

void AutoCodec::ready(size_t bucket, double elements, TimePoint now) {
  auto& buckets = steps_.back().buckets;
  if (buckets.size() <= bucket) buckets.resize(bucket + 1);
  buckets[bucket] = {elements, seconds(now - begun_), 0};
}

void AutoCodec::done(size_t bucket, TimePoint now) {
  if (steps_.empty() || steps_.back().buckets.size() <= bucket) return;
  steps_.back().buckets[bucket].done = std::max(seconds(now - begun_), 1e-9);
}

size_t AutoCodec::codec_of(size_t bucket) const {
  return bucket < choice_.codecs.size() ? choice_.codecs[bucket] : 0;
}

// [latency, step, buckets' ready times, candidates' costs]
std::vector<double> AutoCodec::measurement(double latency, std::span<const double> costs) const {
  std::vector<double> steps;
  const Step* last = nullptr;
  for (const Step& step : steps_) {
    if (!step.complete()) continue;
    const Bucket& end = step.buckets.back();
    if (step.gap > 0) steps.push_back(step.gap - std::max(0.0, end.done - end.ready));
    last = &step;
  }
  std::vector<double> out{latency, median(steps)};
  for (size_t i = 0; last != nullptr && i < last->buckets.size(); ++i) {
    std::vector<double> ready;
    for (const Step& step : steps_)
      if (step.complete() && step.buckets.size() == last->buckets.size())
        ready.push_back(step.buckets[i].ready);
    out.push_back(median(ready));
  }
  out.insert(out.end(), costs.begin(), costs.end());
  return out;
}

const CodecChoice& AutoCodec::choose(std::span<const double> mean) {
  const auto complete = std::find_if(steps_.rbegin(), steps_.rend(),
                                     [](const Step& step) { return step.complete(); });
  if (complete == steps_.rend()) return choice_;
  const std::vector<Bucket> buckets = complete->buckets;
  check(mean.size() == 2 + buckets.size() + kCandidates.size(),
        "a measurement of other buckets than ours");
  // Other work between steps, as an evaluation, must not count.
  shortest_step_ = shortest_step_ > 0 ? std::min(shortest_step_, mean[1]) : mean[1];
  BackwardPass pass;
  pass.latency = mean[0];
  for (size_t i = 0; i < buckets.size(); ++i)
    pass.buckets.push_back({mean[2 + i], buckets[i].elements});
  pass.end = mean[1 + buckets.size()];
  pass.step = shortest_step_;
  std::vector<CodecCost> costs;
  for (size_t i = 0; i < kCandidates.size(); ++i)
    costs.push_back({kCandidates[i], mean[2 + buckets.size() + i]});
  choice_ = choose_codecs(pass, costs);
  reason_ = explain(choice_, pass, costs);
  steps_.erase(steps_.begin(), steps_.end() - 1);  // the step that has just begun goes on
  return choice_;
}

}  // namespace ringdist
