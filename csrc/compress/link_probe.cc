#include "compress/link_probe.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>

#include "codec/gradient_memory.h"
#include "codec/none.h"
#include "compress/compression_method.h"
#include "engine/device/device_runner.h"

namespace ringdist {

LowRankBenchmark::LowRankBenchmark(const MatrixShape& shape)
    : shape_(shape),
      values_(static_cast<size_t>(shape.count())),
      residual_(values_.size()),
      left_(static_cast<size_t>(shape.left())),
      right_(static_cast<size_t>(shape.right())) {
  draw_noise(0, values_);
  draw_noise(1, right_);
}

void LowRankBenchmark::run() {
  multiply_right(shape_, values_, residual_, right_, left_);
  orthonormalise(shape_, left_);
  multiply_left(shape_, values_, residual_, left_, right_);
  reconstruct(shape_, left_, right_, right_, values_, residual_);
}

std::function<void()> benchmark_on_host(const MatrixShape& shape, GradientMemory&) {
  return [rehearsal = std::make_shared<LowRankBenchmark>(shape)] { rehearsal->run(); };
}

namespace {

// 512 KiB uncompressed, which takes about 60 ms at 100 Mb/s.
constexpr int64_t kCount = 128 * 1024;
// For devices. Their paths are faster but have a higher latency, so a measurement needs more
// elements.
constexpr int64_t kDeviceCount = 1024 * 1024;
// Repetitions; the shortest one counts.
constexpr int kTimes = 3;
// The difference of two sizes separates the cost per element from the cost per matrix. The large
// one has 16 MiB of values, and as much of residuals.
constexpr MatrixShape kMatrix{2048, 2048, 4};
constexpr MatrixShape kSmallMatrix{64, 64, 4};

// Yields in a loop, because a marker cannot wake a thread.
void await_moment(const TimeMarker& moment) {
  while (!moment.passed()) std::this_thread::yield();
}

// Returns a request for an in-place average over `count` values. `held` keeps them alive until the
// op has ended.
OpRequest average_of(void* values, int64_t count, DType dtype, std::shared_ptr<void> held) {
  OpRequest request;
  request.kind = Collective::kAllreduce;
  request.dtype = dtype;
  request.reduce_op = ReduceOp::kAvg;
  request.count = count;
  request.output = Buffer(dtype_size(dtype));
  request.output.append(values, count);
  request.keep_alive = std::move(held);
  return request;
}

// Waits for `end` and returns the seconds. `begin` has passed by then, because both are of one
// clock.
double seconds_between(const TimeMarker& begin, const TimeMarker& end) {
  await_moment(end);
  return end.since(begin);
}

}  // namespace

// On a device, the end is marked behind the op on its stream; on the host, after the wait.
Result<double> LinkProbe::average(OpRequest request) {
  const auto place = request.device_stream;
  const TimeMarkerPtr begin = tools_.now();
  auto op = group_->submit(std::move(request), /*will_wait=*/true);
  Error error = op.error();
  TimeMarkerPtr end;
  if (!error && place) {
    error = op.value()->device_work->order(place->stream);
    end = tools_.now();
  }
  if (op.ok()) tools_.wait(*op.value());
  if (!error) error = op.value()->error();
  if (error) {
    group_->run_failure_hooks();
    return error;
  }
  if (!end) end = tools_.now();
  return seconds_between(*begin, *end);
}

Result<std::vector<double>> LinkProbe::mean(std::vector<double> values) {
  const auto held = std::make_shared<std::vector<double>>(std::move(values));
  const auto took = average(average_of(held->data(), std::ssize(*held), DType::kFloat64, held));
  if (!took.ok()) return took.error();
  return *held;
}

Error LinkProbe::meet() {
  await_moment(*tools_.now());  // the device finishes earlier work first
  return mean({0}).error();
}

// The shortest duration has the least noise from other processes.
template <typename Body>
Result<double> LinkProbe::shortest(const Body& body) {
  double out = 0;
  for (int i = 0; i < kTimes; ++i) {
    if (Error error = meet()) return error;
    const Result<double> took = body();
    if (!took.ok()) return took.error();
    out = i == 0 ? took.value() : std::min(out, took.value());
  }
  return out;
}

Result<double> LinkProbe::time(int64_t count, const std::string& codec,
                               std::optional<bool> feedback, GradientMemory& memory) {
  const auto method = make_compression_method("codec", codec, group_->size(), feedback);
  if (!method.ok()) return method.error();
  const auto size = static_cast<size_t>(count);
  const auto values = std::make_shared<FloatBuffer>(memory, size);
  values->assign(std::vector<float>(size, 1.0F));
  // Storing the residual takes as long as the rest of the arithmetic, so it must be timed, too.
  const bool has_feedback = method.value()->feedback();
  const auto residual = std::make_shared<FloatBuffer>(memory, has_feedback ? size : 0);
  BucketPlan plan;
  method.value()->add({0, count, 1, has_feedback ? residual->data() : nullptr}, plan);
  plan.codec_map->keep_alive = residual;
  return shortest([&] {
    OpRequest request = average_of(values->data(), count, DType::kFloat32, values);
    if (plan.coded) request.codec_map = plan.codec_map;
    request.device_stream = memory.place();
    return average(std::move(request));
  });
}

Result<double> LinkProbe::latency(GradientMemory& memory) {
  return time(1, std::string(kNoCodec), false, memory);
}

Result<std::vector<double>> LinkProbe::codec_seconds(std::span<const std::string> codecs,
                                                     double latency, std::optional<bool> feedback,
                                                     GradientMemory& memory) {
  const int64_t count = memory.place() ? kDeviceCount : kCount;
  std::vector<double> out;
  for (const std::string& codec : codecs) {
    const auto total = time(count, codec, feedback, memory);
    if (!total.ok()) return total.error();
    out.push_back((total.value() - latency) / static_cast<double>(count));
  }
  return out;
}

Result<double> LinkProbe::arithmetic(const MatrixShape& shape, GradientMemory& memory) {
  const auto run = tools_.benchmark(shape, memory);
  if (!run.ok()) return run.error();
  return shortest([&]() -> Result<double> {
    const TimeMarkerPtr begin = tools_.now();
    run.value()();
    return seconds_between(*begin, *tools_.now());
  });
}

Result<LowRankSeconds> LinkProbe::low_rank_seconds(GradientMemory& memory) {
  if (const auto known = low_rank_.find(&memory); known != low_rank_.end()) return known->second;
  const auto small = arithmetic(kSmallMatrix, memory);
  if (!small.ok()) {
    if (small.error().kind() != ErrorKind::kNotSupported) return small.error();
    return low_rank_[&memory] = {std::numeric_limits<double>::infinity(), 0};
  }
  const auto large = arithmetic(kMatrix, memory);
  if (!large.ok()) return large.error();
  const double rest = std::max(0.0, large.value() - small.value());
  return low_rank_[&memory] = {small.value(), rest / static_cast<double>(kMatrix.count())};
}

}  // namespace ringdist
