// Samples of PowerSGD's arithmetic on CPU tensors.
#include "torch/ddp/low_rank_sample.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "compress/fakes.h"

namespace ringdist {
namespace {

TEST(LowRankSample, ComputesAllStagesAsOftenAsAsked) {
  LowRankSample sample({{64, 32, 2}, {48, 48, 4}}, at::kCPU);
  const at::Tensor first = sample.run().clone();
  EXPECT_EQ(first.numel(), 64 * 32 + 48 * 48);
  EXPECT_TRUE(first.isfinite().all().item<bool>());
  EXPECT_GT(first.abs().max().item<float>(), 0);
  EXPECT_TRUE(sample.run().isfinite().all().item<bool>());
  benchmark_low_rank({64, 64, 4}, at::kCPU)();
}

// A probe of two ranks, where the other rank contributes other values.
class OtherDevice final : public CostProbe {
 public:
  Result<std::vector<double>> mean(std::vector<double> values) override {
    const double other = values[0] + 1000;
    return std::vector<double>{(values[0] + other) / 2, (values[1] + other * other) / 2};
  }
  Result<double> latency(GradientMemory&) override { return 0.0; }
  Result<std::vector<double>> codec_seconds(std::span<const std::string>, double,
                                            std::optional<bool>, GradientMemory&) override {
    return std::vector<double>();
  }
  Result<LowRankSeconds> low_rank_seconds(GradientMemory&) override { return LowRankSeconds(); }
};

TEST(LowRankSample, DevicesThatComputeOtherwiseAreRefused) {
  FakeProbe alike;
  EXPECT_FALSE(check_devices_alike(alike, at::kCPU));
  EXPECT_EQ(alike.asked, 1);
  OtherDevice other;
  const Error error = check_devices_alike(other, at::kCPU);
  ASSERT_TRUE(error);
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("powersgd: the devices"), std::string::npos) << error.what();
  alike.error = Error(ErrorKind::kPeerLost, "rank 1 is lost");
  EXPECT_EQ(check_devices_alike(alike, at::kCPU).message(), "rank 1 is lost");
}

}  // namespace
}  // namespace ringdist
