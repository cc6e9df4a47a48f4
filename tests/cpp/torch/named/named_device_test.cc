// Calls by name with device tensors: order of streams, memory of results, factors, refusals. The
// device is torch/test_device.h; its runner doubles values.
#include "torch/named/named_device.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/communicator.h"
#include "engine/context/context.h"
#include "torch/doubling_runner.h"
#include "torch/named/named_group.h"
#include "torch/test_device.h"

namespace ringdist {
namespace {

using test::device_streams;

class NamedCallsOnDevice : public testing::Test {
 protected:
  NamedCallsOnDevice() {
    test::reset_device();
    context_ = Context::create({}).value();
    make(test::kTestDevice);
  }
  ~NamedCallsOnDevice() override {
    group_->close();
    group_.reset();
    context_->shutdown();
  }
  void make(c10::DeviceType devices) {
    CommunicatorOptions options;
    options.name = "alone";
    options.members = {0};
    options.make_runner = test::make_doubling_runner;
    auto communicator = Communicator::create(context_, std::move(options)).value();
    group_ = std::make_unique<NamedGroup>(communicator, NegotiationOptions{}, devices);
  }
  // Another thread starts the call.
  static const Tensors& finish(const NamedGroup::Handle& work) {
    while (!work->poll()) {
      (void)device_streams().progress();
      std::this_thread::yield();
    }
    return work->wait();
  }
  std::string refusal(const Tensors& inputs, const Tensors& outputs) {
    try {
      group_->allreduce("refused", inputs, outputs, {});
    } catch (const c10::Error& error) {
      return error.what_without_backtrace();
    }
    return "accepted";
  }

  std::shared_ptr<Context> context_;
  std::unique_ptr<NamedGroup> group_;
};

TEST_F(NamedCallsOnDevice, ComeAfterWhatTheStreamHoldsWhenTheyAreMade) {
  std::vector<float> values{1, 2};
  bool later = false;
  void* const mine = test::current_device_stream();
  device_streams().push(mine, {{}, [&] { values[0] = 10; }});
  const at::Tensor tensor = test::on_device(values, {2});
  const auto work = group_->allreduce("x", {tensor}, {tensor}, {});
  device_streams().push(mine, {[&] { return later; }, {}});  // waits until the test sets `later`
  EXPECT_FALSE(work->poll());
  EXPECT_EQ(values[0], 1) << "the host waited";
  while (!work->poll()) (void)device_streams().progress();
  EXPECT_EQ(values, (std::vector<float>{20, 4}));
  later = true;
}

TEST_F(NamedCallsOnDevice, PutResultsInPlaceOnTheStreamOfWhoWaits) {
  std::vector<float> values{1, 2, 3, 4};
  const at::Tensor columns = test::on_device(values, {2, 2}).t();
  NamedGroup::ReduceOptions how;
  const auto work = group_->allreduce("x", {columns}, {columns}, how);
  (void)finish(work);
  std::vector<float> seen;
  device_streams().push(test::current_device_stream(), {{}, [&] { seen = values; }});
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen, (std::vector<float>{2, 4, 6, 8}));
}

TEST_F(NamedCallsOnDevice, GatherIntoNewMemory) {
  std::vector<float> values{1, 2, 3};
  const auto work = group_->allgather("x", {test::on_device(values, {3})});
  const Tensors& results = finish(work);
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].device().type(), test::kTestDevice);
  EXPECT_EQ(results[0].numel(), 3);
}

TEST_F(NamedCallsOnDevice, RefuseTensorsOnSeveralDevices) {
  std::vector<float> values{1};
  const std::string text = refusal({test::on_device(values, {1})}, {at::ones({1})});
  EXPECT_NE(text.find("allreduce: its tensors are on several devices, privateuseone:0 and cpu"),
            std::string::npos)
      << text;
  const at::Tensor here = at::ones({1});
  EXPECT_EQ(group_->allreduce("refused", {here}, {here}, {})->wait().size(), 1u)
      << "its name is free";
}

TEST_F(NamedCallsOnDevice, RefuseDevicesOfAnotherType) {
  group_->close();
  make(c10::DeviceType::CUDA);
  std::vector<float> values{1};
  const at::Tensor tensor = test::on_device(values, {1});
  const std::string text = refusal({tensor}, {tensor});
  EXPECT_NE(text.find("allreduce: its tensors are on device privateuseone:0; supported: cpu, cuda"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace ringdist
