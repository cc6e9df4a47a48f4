#include "compress/link_probe.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "codec/none.h"
#include "compress/low_rank_rehearsal.h"
#include "compress/treatment.h"

namespace ringdist {
namespace {

// 512 KiB uncompressed, some 60 ms at 100 Mb/s.
constexpr int64_t kCount = 128 * 1024;
constexpr int kTimes = 3;
constexpr MatrixShape kMatrix{2048, 2048, 4};

// The shortest of a few. `meet` lets the ranks begin together.
template <typename Meet, typename Body>
Result<double> shortest(const Meet& meet, const Body& body) {
  double out = 0;
  for (int i = 0; i < kTimes; ++i) {
    if (Error error = meet()) return error;
    const TimePoint begin = Clock::now();
    if (Error error = body()) return error;
    const double time = seconds(Clock::now() - begin);
    out = i == 0 ? time : std::min(out, time);
  }
  return out;
}

// An average over all of `values`, which the op holds.
template <typename T>
OpRequest average_of(const std::shared_ptr<std::vector<T>>& values, DType dtype) {
  OpRequest request;
  request.kind = Collective::kAllreduce;
  request.dtype = dtype;
  request.reduce_op = ReduceOp::kAvg;
  request.count = std::ssize(*values);
  request.output = Buffer(sizeof(T));
  request.output.append(values->data(), request.count);
  request.keep_alive = values;
  return request;
}

}  // namespace

Error LinkProbe::average(OpRequest request) {
  auto op = group_->submit(std::move(request), /*will_wait=*/true);
  if (op.ok()) wait_(*op.value());
  const Error error = op.ok() ? op.value()->error() : op.error();
  if (error) group_->tell_failure();
  return error;
}

Result<std::vector<double>> LinkProbe::mean(std::vector<double> values) {
  const auto held = std::make_shared<std::vector<double>>(std::move(values));
  if (Error error = average(average_of(held, DType::kFloat64))) return error;
  return *held;
}

Error LinkProbe::meet() { return mean({0}).error(); }

Result<double> LinkProbe::time(int64_t count, const std::string& codec,
                               std::optional<bool> feedback) {
  const auto treatment = make_treatment("codec", codec, group_->size(), feedback);
  if (!treatment.ok()) return treatment.error();
  // Keeping what is lost takes as long as the rest of the arithmetic.
  const bool owes = treatment.value()->feedback();
  const auto residual = std::make_shared<std::vector<float>>(owes ? count : 0);
  BucketPlan plan;
  treatment.value()->add({0, count, 1, owes ? residual->data() : nullptr}, plan);
  plan.blocks->keep_alive = residual;
  const auto values = std::make_shared<std::vector<float>>(count, 1.0F);
  return shortest([&] { return meet(); },
                  [&] {
                    OpRequest request = average_of(values, DType::kFloat32);
                    if (plan.coded) request.blocks = plan.blocks;
                    return average(std::move(request));
                  });
}

Result<double> LinkProbe::latency() { return time(1, std::string(kNoCodec), false); }

Result<std::vector<double>> LinkProbe::codec_seconds(std::span<const std::string> codecs,
                                                     double latency, std::optional<bool> feedback) {
  std::vector<double> out;
  for (const std::string& codec : codecs) {
    const auto total = time(kCount, codec, feedback);
    if (!total.ok()) return total.error();
    out.push_back((total.value() - latency) / kCount);
  }
  return out;
}

Result<double> LinkProbe::low_rank_seconds() {
  if (low_rank_) return *low_rank_;
  LowRankRehearsal rehearsal(kMatrix);
  const auto time = shortest([&] { return meet(); },
                             [&] {
                               rehearsal.run();
                               return Error();
                             });
  if (time.ok()) low_rank_ = time.value() / static_cast<double>(kMatrix.count());
  return low_rank_ ? *low_rank_ : time;
}

}  // namespace ringdist
