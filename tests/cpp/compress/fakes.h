// Fakes of the surroundings of a GradientCompressor. No ops run: buckets complete and time passes
// when a test requests it.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "codec/gradient_memory.h"
#include "compress/bucket.h"
#include "compress/cost_probe.h"

namespace ringdist {

class FakePending final : public PendingBucket {
 public:
  bool ended() const override { return ended_; }
  bool failed() const override { return failed_; }
  void wait() const override {
    if (on_wait) on_wait();
  }
  bool ends_later() const override { return on_device; }
  void on_end(std::function<void()> callback) override {
    callbacks_.push_back(std::move(callback));
  }

  void end(bool failed = false) {
    ended_ = true;
    failed_ = failed;
    for (const auto& callback : callbacks_) callback();
  }

  std::function<void()> on_wait;
  bool on_device = false;

 private:
  bool ended_ = false;
  bool failed_ = false;
  std::vector<std::function<void()>> callbacks_;
};

// A probe of a link with fixed speed, in a group in which all ranks contribute the same values.
class FakeProbe final : public CostProbe {
 public:
  Result<std::vector<double>> mean(std::vector<double> values) override {
    ++asked;
    if (error) return error;
    return values;
  }
  Result<double> latency(GradientMemory& memory) override {
    asked_of.insert(&memory);
    return 1e-4;
  }
  Result<std::vector<double>> codec_seconds(std::span<const std::string> codecs, double,
                                            std::optional<bool>, GradientMemory& memory) override {
    asked_of.insert(&memory);
    return std::vector<double>(codecs.size(), 1e-6);
  }
  Result<LowRankSeconds> low_rank_seconds(GradientMemory& memory) override {
    asked_of.insert(&memory);
    return LowRankSeconds{0, 1e-6};
  }

  int asked = 0;
  std::set<GradientMemory*> asked_of;
  Error error;
};

// Device memory that is host memory.
class FakeMemory final : public GradientMemory {
 public:
  std::optional<DeviceStream> place() const override { return DeviceStream{0, stream}; }
  std::shared_ptr<float> zeros(int64_t count) override { return host_memory().zeros(count); }
  void read(const float* from, std::span<float> to) override { host_memory().read(from, to); }
  void write(std::span<const float> from, float* to) override { host_memory().write(from, to); }
  double squared_norm(DType dtype, ConstBytes values, const float* residual) override {
    return host_memory().squared_norm(dtype, values, residual);
  }
  bool all_zero(DType dtype, ConstBytes values) override {
    return host_memory().all_zero(dtype, values);
  }
  void scale(DType dtype, Bytes values, double factor) override {
    host_memory().scale(dtype, values, factor);
  }
  void apply_residual(DType dtype, Bytes values, ResidualSpan residual) override {
    host_memory().apply_residual(dtype, values, residual);
  }

  void* stream = nullptr;
};

// Returns a parameter with the given key and sizes.
inline ParameterInfo parameter_of(ParameterKey key, std::vector<int64_t> sizes) {
  return {key, nullptr, MemoryOrder(std::move(sizes)), false};
}

}  // namespace ringdist
