#include "torch/ddp/link_probe.h"

#include <algorithm>

#include "base/clock.h"
#include "codec/none.h"
#include "compress/low_rank_rehearsal.h"
#include "compress/treatment.h"
#include "torch/errors.h"

namespace ringdist {
namespace {

// 512 KiB uncompressed, some 60 ms at 100 Mb/s.
constexpr int64_t kCount = 128 * 1024;
constexpr int kTimes = 3;
constexpr MatrixShape kMatrix{2048, 2048, 4};

// The shortest of a few. `meet` lets the ranks begin together.
template <typename Meet, typename Body>
double shortest(const Meet& meet, const Body& body) {
  double out = 0;
  for (int i = 0; i < kTimes; ++i) {
    meet();
    const TimePoint begin = Clock::now();
    body();
    const double time = seconds(Clock::now() - begin);
    out = i == 0 ? time : std::min(out, time);
  }
  return out;
}

}  // namespace

std::vector<double> LinkProbe::mean(std::vector<double> values) const {
  const at::Tensor mean = at::empty(static_cast<int64_t>(values.size()), at::kDouble);
  std::ranges::copy(values, mean.mutable_data_ptr<double>());
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  group_->allreduce_blocks({mean}, options, nullptr)->wait();
  std::ranges::copy_n(mean.const_data_ptr<double>(), values.size(), values.begin());
  return values;
}

double LinkProbe::time(int64_t count, const std::string& codec,
                       std::optional<bool> feedback) const {
  const auto treatment = make_treatment("codec", codec, group_->getSize(), feedback);
  throw_if(treatment.error());
  // Keeping what is lost takes as long as the rest of the arithmetic.
  const bool owes = treatment.value()->feedback();
  const auto residual = std::make_shared<std::vector<float>>(owes ? count : 0);
  BucketPlan plan;
  treatment.value()->add({0, count, 1, owes ? residual->data() : nullptr}, plan);
  plan.blocks->keep_alive = residual;
  const at::Tensor values = at::ones(count, at::kFloat);
  c10d::AllreduceOptions options;
  options.reduceOp = c10d::ReduceOp::AVG;
  return shortest([&] { mean({0}); },
                  [&] {
                    const auto blocks = plan.coded ? plan.blocks : nullptr;
                    group_->allreduce_blocks({values}, options, blocks)->wait();
                  });
}

double LinkProbe::latency() const { return time(1, std::string(kNoCodec), false); }

std::vector<double> LinkProbe::codec_seconds(std::span<const std::string> codecs, double latency,
                                             std::optional<bool> feedback) const {
  std::vector<double> out;
  for (const std::string& codec : codecs)
    out.push_back((time(kCount, codec, feedback) - latency) / kCount);
  return out;
}

double LinkProbe::low_rank_seconds() {
  if (low_rank_) return *low_rank_;
  LowRankRehearsal rehearsal(kMatrix);
  const double time = shortest([&] { mean({0}); }, [&] { rehearsal.run(); });
  low_rank_ = time / static_cast<double>(kMatrix.count());
  return *low_rank_;
}

}  // namespace ringdist
