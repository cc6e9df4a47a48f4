// Calls with device tensors, from the CallSubmitter to their Works: order of streams, results that
// are copied back, Futures, refusals. The device is torch/test_device.h; its runner doubles
// values.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "engine/context/context.h"
#include "torch/call_submitter.h"
#include "torch/doubling_runner.h"
#include "torch/ops/data_movement.h"
#include "torch/ops/reduce.h"
#include "torch/test_device.h"

namespace ringdist {
namespace {

using test::device_streams;
class DeviceCalls : public testing::Test {
 protected:
  DeviceCalls() {
    test::reset_device();
    context_ = Context::create({}).value();
  }
  ~DeviceCalls() override {
    runner_.reset();
    communicator_->close();
    communicator_.reset();
    context_->shutdown();
  }
  void make(MakeDeviceRunner make_runner, c10::DeviceType devices = test::kTestDevice) {
    CommunicatorOptions options;
    options.name = "alone";
    options.members = {0};
    options.make_runner = std::move(make_runner);
    communicator_ = Communicator::create(context_, std::move(options)).value();
    runner_ = std::make_shared<CallSubmitter>(communicator_, devices);
  }
  void make() { make(test::make_doubling_runner); }
  WorkPtr allreduce(const Tensors& tensors, const c10d::AllreduceOptions& opts = {}) {
    return CallScope(*runner_).submit(allreduce_coalesced_call(tensors, opts));
  }
  std::string refusal(const Tensors& tensors) {
    try {
      allreduce(tensors);
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  }
  static void await(const WorkPtr& work) {
    while (!work->isCompleted()) std::this_thread::yield();
  }

  std::shared_ptr<Context> context_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<CallSubmitter> runner_;
};

TEST_F(DeviceCalls, OrderStreamsAndBlockNobody) {
  make();
  std::vector<float> values{1, 2};
  device_streams().push(test::current_device_stream(), {{}, [&] { values[0] = 10; }});
  const auto work = allreduce({test::on_device(values, {2})});
  EXPECT_TRUE(work->wait());
  float seen = 0;
  device_streams().push(test::current_device_stream(), {{}, [&] { seen = values[0]; }});
  EXPECT_EQ(values[0], 1) << "the host waited";
  EXPECT_FALSE(work->isCompleted());
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen, 20);
  EXPECT_EQ(values[1], 4);
  await(work);
  EXPECT_TRUE(work->isSuccess());
}

TEST_F(DeviceCalls, BringResultsBackOnAStream) {
  make();
  std::vector<float> values{1, 2, 3, 4};
  const at::Tensor columns = test::on_device(values, {2, 2}).t();
  const auto work = allreduce({columns});
  EXPECT_TRUE(work->wait());
  std::vector<float> seen;
  device_streams().push(test::current_device_stream(), {{}, [&] { seen = values; }});
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen, (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(DeviceCalls, HaveAFutureThatIsMarkedAtOnce) {
  make();
  std::vector<float> values{1};
  const auto work = allreduce({test::on_device(values, {1})});
  const auto future = work->getFuture();
  ASSERT_TRUE(future->completed());
  float seen = 0;
  future->addCallback([&](c10::ivalue::Future&) {
    device_streams().push(test::current_device_stream(), {{}, [&] { seen = values[0]; }});
  });
  EXPECT_EQ(seen, 0);
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen, 2);
}

TEST_F(DeviceCalls, TellTheirCompletionsWhenTheDeviceHasDoneThem) {
  make();
  std::vector<float> values{1};
  const auto work = allreduce({test::on_device(values, {1})});
  EXPECT_FALSE(device_streams().progress());
  await(work);
  EXPECT_GE(work->getDuration(), 0);
}

TEST_F(DeviceCalls, OfBothDevicesHaveOneOrder) {
  make();
  std::vector<float> values{1};
  const auto there = allreduce({test::on_device(values, {1})});
  const auto here = allreduce({at::ones({1})});
  EXPECT_TRUE(here->wait());
  EXPECT_EQ(here->getSequencenumber(), there->getSequencenumber() + 1);
  EXPECT_FALSE(there->isCompleted());
  EXPECT_FALSE(device_streams().progress());
}

TEST_F(DeviceCalls, RefuseTensorsOnSeveralDevices) {
  make();
  std::vector<float> values{1};
  const std::string text = refusal({at::ones({1}), test::on_device(values, {1})});
  EXPECT_NE(text.find("all_reduce: its tensors are on several devices, cpu and privateuseone:0"),
            std::string::npos)
      << text;
  EXPECT_EQ(communicator_->sequence_number(), 0u);
}

TEST_F(DeviceCalls, RefuseDevicesThatNobodyRuns) {
  make(nullptr);
  std::vector<float> values{1};
  EXPECT_NE(refusal({test::on_device(values, {1})}), "accepted");
  EXPECT_TRUE(allreduce({at::ones({1})})->wait()) << "the group is usable";
}

TEST_F(DeviceCalls, RefuseDevicesOfAnotherType) {
  make(nullptr, c10::DeviceType::CUDA);
  std::vector<float> values{1};
  const std::string text = refusal({test::on_device(values, {1})});
  EXPECT_NE(text.find("on device privateuseone:0; supported: cpu, cuda"), std::string::npos)
      << text;
}

}  // namespace
}  // namespace ringdist
