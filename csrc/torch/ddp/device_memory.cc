#include "torch/ddp/device_memory.h"

#include <ATen/ATen.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "torch/base/devices.h"

namespace ringdist {
namespace {

class DeviceMemory final : public GradientMemory {
 public:
  explicit DeviceMemory(c10::Device device) : device_(device) {}

  c10::Device device() const { return device_; }
  std::optional<DeviceStream> place() const override { return place_on(device_); }

  std::shared_ptr<float> zeros(int64_t count) override {
    const auto held = std::make_shared<at::Tensor>(
        at::zeros({count}, at::TensorOptions().dtype(at::kFloat).device(device_)));
    return {held, held->data_ptr<float>()};
  }
  void read(const float* from, std::span<float> to) override {
    on_host(to.data(), to.size()).copy_(floats(from, to.size()));
  }
  void write(std::span<const float> from, float* to) override {
    floats(to, from.size()).copy_(on_host(from.data(), from.size()));
  }

  double squared_norm(DType dtype, ConstBytes values, const float* residual) override {
    at::Tensor sum = stored(dtype, values).to(at::kFloat);
    if (residual != nullptr) sum = sum + floats(residual, static_cast<size_t>(sum.numel()));
    return sum.to(at::kDouble).square().sum().item<double>();
  }
  bool all_zero(DType dtype, ConstBytes values) override {
    return stored(dtype, values).eq(0).all().item<bool>();
  }
  void scale(DType dtype, Bytes values, double factor) override {
    at::Tensor there = stored(dtype, values);
    there.copy_(there.to(at::kFloat).mul(static_cast<float>(factor)));
  }
  void apply_residual(DType dtype, Bytes values, ResidualSpan residual) override {
    at::Tensor there = stored(dtype, values);
    const at::Tensor old_residual = floats(residual.from, residual.count);
    const at::Tensor sum = there.to(at::kFloat) + old_residual;
    there.copy_(sum);
    const at::Tensor lost = sum - there.to(at::kFloat);
    floats(residual.to, residual.count).copy_(at::where(lost.isfinite(), lost, old_residual));
  }

 private:
  static at::Tensor on_host(const float* data, size_t count) {
    return tensor_at(data, {static_cast<int64_t>(count)}, at::kFloat, at::kCPU);
  }
  at::Tensor floats(const float* data, size_t count) const {
    return tensor_at(data, {static_cast<int64_t>(count)}, at::kFloat, device_);
  }
  // Returns values as a tensor. Their dtype is fp32, bf16 or fp16.
  at::Tensor stored(DType dtype, ConstBytes values) const {
    const at::ScalarType type = dtype == DType::kFloat32    ? at::kFloat
                                : dtype == DType::kBFloat16 ? at::kBFloat16
                                                            : at::kHalf;
    return tensor_at(values.data(), {static_cast<int64_t>(values.size() / dtype_size(dtype))}, type,
                     device_);
  }

  const c10::Device device_;
};

}  // namespace

GradientMemory& device_memory(c10::Device device) {
  static std::mutex mutex;
  static auto& made = *new std::map<std::pair<c10::DeviceType, c10::DeviceIndex>,
                                    std::unique_ptr<DeviceMemory>>;  // lives as long as the process
  std::lock_guard lock(mutex);
  auto& memory = made[{device.type(), device.index()}];
  if (!memory) memory = std::make_unique<DeviceMemory>(device);
  return *memory;
}

std::optional<c10::Device> device_of(const GradientMemory& memory) {
  const auto* there = dynamic_cast<const DeviceMemory*>(&memory);
  return there ? std::optional(there->device()) : std::nullopt;
}

}  // namespace ringdist
