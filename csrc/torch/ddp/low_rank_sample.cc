#include "torch/ddp/low_rank_sample.h"

#include <ATen/ATen.h>

#include <cmath>
#include <memory>

#include "base/hash.h"
#include "torch/ddp/device_memory.h"
#include "torch/ddp/low_rank_tensors.h"

namespace ringdist {
namespace {

// Small matrices with several ranks and sides, for which the libraries may choose different
// algorithms.
const std::vector<MatrixShape> kCompared{
    {64, 64, 1}, {96, 1500, 2}, {1000, 300, 4}, {512, 512, 16}};

// Returns 20 bits of a hash of the bits of floats on the host. The square of such a number, and
// sums of squares, are exact in a double.
double digest_of(const at::Tensor& values) {
  Hash hash;
  const at::Tensor bits = values.view(at::kInt);
  for (int64_t i = 0; i < bits.numel(); ++i)
    hash.add(static_cast<int64_t>(bits.const_data_ptr<int>()[i]));
  return static_cast<double>(hash.value() >> 44);
}

}  // namespace

LowRankSample::LowRankSample(const std::vector<MatrixShape>& shapes, c10::Device device) {
  GradientMemory& memory = device_memory(device);
  int64_t count = 0;
  for (const MatrixShape& shape : shapes) count += shape.count();
  const std::vector<float> noise = first_right({1, count, 1});
  bucket_ = at::tensor(noise, at::TensorOptions(at::kFloat).device(device));
  int64_t offset = 0;
  for (const MatrixShape& shape : shapes) {
    const auto size = static_cast<size_t>(shape.count());
    residuals_.emplace_back(memory, size);
    float* const residual = residuals_.back().data();
    residuals_.emplace_back(memory, size);
    const ParameterSlice slice{offset, shape.count(), shape.rows, residual,
                               residuals_.back().data()};
    const auto right = static_cast<size_t>(shape.right());
    inputs_.push_back({{slice, shape}, FloatBuffer(memory, right), FloatBuffer(memory, right)});
    inputs_.back().right.assign(first_right(shape));
    offset += shape.count();
  }
}

const at::Tensor& LowRankSample::run() {
  LowRankTensors stages(bucket_, inputs_);
  stages.lefts();
  stages.rights();
  stages.finish();
  return bucket_;
}

std::function<void()> benchmark_low_rank(const MatrixShape& shape, c10::Device device) {
  const std::vector<MatrixShape> shapes{shape};
  return [sample = std::make_shared<LowRankSample>(shapes, device)] { sample->run(); };
}

Error check_devices_alike(CostProbe& probe, c10::Device device) {
  const double digest = digest_of(LowRankSample(kCompared, device).run().cpu());
  const auto mean = probe.mean({digest, digest * digest});
  if (!mean.ok()) return mean.error();
  const double variance = mean.value()[1] - mean.value()[0] * mean.value()[0];
  if (std::abs(variance) < 0.5) return {};
  return Error(
      ErrorKind::kNotSupported,
      "ringdist: compress: powersgd: the devices of the ranks do not compute alike, so that "
      "their models would drift apart; it needs GPUs of one model and one build of PyTorch "
      "and its libraries on all ranks");
}

}  // namespace ringdist
