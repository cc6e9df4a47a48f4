// Measurements that "auto" makes on a device: LinkProbe with the time markers and ops of
// torch/test_device.h.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "compress/fakes.h"
#include "compress/link_probe.h"
#include "engine/communicator.h"
#include "engine/context/context.h"
#include "torch/ddp/ddp_compressor.h"
#include "torch/doubling_runner.h"
#include "torch/test_device.h"

namespace ringdist {
namespace {

using test::device_streams;

// A time marker that lets the fake device proceed each time that the host queries it.
class Driven final : public TimeMarker {
 public:
  explicit Driven(TimeMarkerPtr moment) : moment_(std::move(moment)) {}
  bool passed() const override {
    device_streams().progress();
    return moment_->passed();
  }
  double since(const TimeMarker& earlier) const override {
    return moment_->since(*static_cast<const Driven&>(earlier).moment_);
  }

 private:
  const TimeMarkerPtr moment_;
};

class DeviceProbe : public testing::Test {
 protected:
  DeviceProbe() {
    test::reset_device();
    context_ = Context::create({}).value();
    CommunicatorOptions options;
    options.name = "alone";
    options.members = {0};
    options.make_runner = test::make_doubling_runner;
    communicator_ = Communicator::create(context_, std::move(options)).value();
    memory_.stream = test::current_device_stream();
    clock_.begin(c10::Device(test::kTestDevice, 0));
    LinkProbe::Delegate tools;
    tools.wait = [this](const Op& op) {
      on_device_ += op.request.device_stream ? 1 : 0;
      while (!op.finished()) {
        device_streams().progress();
        communicator_->wait(op, Milliseconds(1));
      }
    };
    tools.now = [this] { return std::make_shared<Driven>(clock_.now()); };
    tools.benchmark = [this](const MatrixShape&, GradientMemory&) -> Result<std::function<void()>> {
      if (refusal_) return refusal_;
      return std::function<void()>([this] { ++runs_; });
    };
    probe_ = std::make_unique<LinkProbe>(communicator_, std::move(tools));
  }
  ~DeviceProbe() override {
    probe_.reset();
    communicator_->close();
    communicator_.reset();
    context_->shutdown();
  }

  std::shared_ptr<Context> context_;
  std::shared_ptr<Communicator> communicator_;
  FakeMemory memory_;
  BucketClock clock_;
  std::unique_ptr<LinkProbe> probe_;
  Error refusal_;
  int on_device_ = 0;
  int runs_ = 0;
};

TEST_F(DeviceProbe, TimesOpsOnTheDeviceByItsClock) {
  const auto latency = probe_->latency(memory_);
  ASSERT_TRUE(latency.ok()) << latency.error().what();
  // The device reaches no other event between the two markers around the op.
  EXPECT_DOUBLE_EQ(latency.value(), 1e-3);
  EXPECT_EQ(on_device_, 3);
  const std::array<std::string, 2> codecs{"none", "int4"};
  const auto costs = probe_->codec_seconds(codecs, 0, std::nullopt, memory_);
  ASSERT_TRUE(costs.ok()) << costs.error().what();
  EXPECT_EQ(on_device_, 9);
  for (const double cost : costs.value()) EXPECT_DOUBLE_EQ(cost, 1e-3 / (1024 * 1024));
}

TEST_F(DeviceProbe, TimesTheArithmeticOfPowerSgdThere) {
  const auto seconds = probe_->low_rank_seconds(memory_);
  ASSERT_TRUE(seconds.ok()) << seconds.error().what();
  EXPECT_EQ(runs_, 6);
  EXPECT_DOUBLE_EQ(seconds.value().matrix, 1e-3);
}

TEST_F(DeviceProbe, SaysWhereThereIsNoPowerSgd) {
  refusal_ = Error(ErrorKind::kNotSupported, "devices differ");
  EXPECT_TRUE(std::isinf(probe_->low_rank_seconds(memory_).value().of(1)));
  refusal_ = Error(ErrorKind::kPeerLost, "rank 1 is lost");
  EXPECT_TRUE(std::isinf(probe_->low_rank_seconds(memory_).value().of(1))) << "asked once";
  EXPECT_EQ(probe_->low_rank_seconds(host_memory()).error().message(), "rank 1 is lost");
}

TEST(BucketClock, IsTheHostsUnlessTheFirstBucketIsOnADevice) {
  BucketClock clock;
  EXPECT_TRUE(clock.now()->passed());
  clock.begin(at::kCPU);
  clock.begin(c10::Device(test::kTestDevice, 0));
  const TimeMarkerPtr before = clock.now();
  EXPECT_GE(clock.now()->since(*before), 0);
}

}  // namespace
}  // namespace ringdist
