// Low-rank averages on streams: their dependences, and the lifetime of memory. The device is
// torch/test_device.h with ops that double values. Each stage adds one to the values and records
// them.
#include "torch/ddp/device_low_rank.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>

#include "compress/fakes.h"
#include "engine/communicator.h"
#include "engine/context/context.h"
#include "torch/call_submitter.h"
#include "torch/ddp/ddp_compressor.h"
#include "torch/doubling_runner.h"
#include "torch/test_device.h"

namespace ringdist {
namespace {

using test::current_device_stream;
using test::device_streams;

// Names and values of the stages that have run, in order.
using Seen = std::vector<std::pair<std::string, float>>;

class SeenStages final : public LowRankStages {
 public:
  // The first element of the bucket stands for the matrix.
  SeenStages(Seen& seen, float* bucket) : seen_(seen), bucket_(bucket) {}

  at::Tensor lefts() override {
    push([this] { seen_.emplace_back("lefts", left_[0] = bucket_[0] + 1); });
    return test::on_device(left_, {1});
  }
  at::Tensor rights() override {
    push([this] { seen_.emplace_back("rights", right_[0] = left_[0] + 1); });
    return test::on_device(right_, {1});
  }
  void finish() override {
    push([this] { seen_.emplace_back("finish", bucket_[0] = right_[0] + 1); });
  }

 private:
  static void push(std::function<void()> run) {
    device_streams().push(current_device_stream(), {{}, std::move(run)});
  }

  Seen& seen_;
  float* const bucket_;
  std::vector<float> left_{0}, right_{0};
};

// Forwards to stages that the test keeps alive, like memory of streams.
class Forwarding final : public LowRankStages {
 public:
  explicit Forwarding(LowRankStages& stages) : stages_(stages) {}
  at::Tensor lefts() override { return stages_.lefts(); }
  at::Tensor rights() override { return stages_.rights(); }
  void finish() override { stages_.finish(); }

 private:
  LowRankStages& stages_;
};

class Streamed : public testing::Test {
 protected:
  Streamed() {
    test::reset_device();
    context_ = Context::create({}).value();
    CommunicatorOptions options;
    options.name = "alone";
    options.members = {0};
    options.make_runner = test::make_doubling_runner;
    communicator_ = Communicator::create(context_, std::move(options)).value();
    runner_ = std::make_shared<CallSubmitter>(communicator_, test::kTestDevice);
    streamed_ = std::make_unique<DeviceLowRank>(
        [this](const at::Tensor& factors) {
          if (averages_++ == fails_at_) throw std::runtime_error("the group has failed");
          return allreduce(factors);
        },
        [this](const at::Tensor&, const std::vector<LowRankInput>&) {
          made_.push_back(std::make_unique<SeenStages>(seen_, values_.data()));
          return std::make_unique<Forwarding>(*made_.back());
        });
  }
  ~Streamed() override {
    streamed_.reset();
    runner_.reset();
    communicator_->close();
    communicator_.reset();
    context_->shutdown();
  }
  WorkPtr allreduce(const at::Tensor& tensor) {
    Call call(Collective::kAllreduce, DType::kFloat32, c10d::OpType::ALLREDUCE,
              "ringdist:all_reduce", {c10d::kUnsetTimeout, true});
    call.request.reduce_op = ReduceOp::kSum;
    call.request.count = tensor.numel();
    call.update(tensor);
    return CallScope(*runner_).submit(std::move(call));
  }
  DeviceLowRank::Running run(std::shared_ptr<void> held = nullptr,
                             const DeviceLowRank::StartRest& rest = nullptr) {
    PlannedBucket planned;
    planned.keep_alive = std::move(held);
    return streamed_->run(test::on_device(values_, {2}), std::move(planned), rest);
  }
  void after_the_caller(const std::string& what) {
    device_streams().push(current_device_stream(),
                          {{}, [this, what] { seen_.emplace_back(what, values_[0]); }});
  }
  static void await(const PendingBucket& pending) {
    while (!pending.ended()) std::this_thread::yield();
  }

  std::shared_ptr<Context> context_;
  std::shared_ptr<Communicator> communicator_;
  std::shared_ptr<CallSubmitter> runner_;
  std::vector<float> values_{1, 5};
  Seen seen_;
  std::vector<std::unique_ptr<SeenStages>> made_;
  int averages_ = 0;
  int fails_at_ = -1;
  std::unique_ptr<DeviceLowRank> streamed_;
};

TEST_F(Streamed, StagesComeInTheirOrderAndTheHostWaitsForNone) {
  device_streams().push(current_device_stream(), {{}, [&] { values_[0] = 10; }});
  const auto running = run();
  EXPECT_TRUE(running.future->completed());
  EXPECT_TRUE(running.pending->ends_later());
  EXPECT_FALSE(running.pending->ended());
  EXPECT_TRUE(seen_.empty()) << "the host waited";
  EXPECT_FALSE(device_streams().progress());
  await(*running.pending);
  EXPECT_FALSE(running.pending->failed());
  EXPECT_EQ(seen_, (Seen{{"lefts", 11}, {"rights", 23}, {"finish", 47}}));
  EXPECT_EQ(values_[0], 47);
}

TEST_F(Streamed, TheCallersStreamGoesOnUntilItWaitsForTheFuture) {
  const auto running = run();
  after_the_caller("meanwhile");
  running.future->wait();
  after_the_caller("after");
  EXPECT_FALSE(device_streams().progress());
  ASSERT_EQ(seen_.size(), 5U);
  EXPECT_EQ(seen_.back(), (std::pair<std::string, float>("after", (2 * (2 * 2 + 1)) + 1)));
}

TEST_F(Streamed, TheRestIsAveragedBesideAndBelongsToIt) {
  std::vector<float> others{3};
  void* const caller = current_device_stream();
  const auto running = run(nullptr, [&](const PlannedBucket&) {
    EXPECT_EQ(current_device_stream(), caller);
    EXPECT_EQ(averages_, 1) << "between the two of the factors";
    return allreduce(test::on_device(others, {1}));
  });
  float seen = 0;
  running.future->wait();
  device_streams().push(current_device_stream(), {{}, [&] { seen = others[0]; }});
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen, 6);
  await(*running.pending);
}

TEST_F(Streamed, TellsWhenTheDeviceHasDoneIt) {
  TimeMarkerPtr ended;
  const DeviceTimeMarker before(c10::Device(test::kTestDevice, 0));
  const auto running = run();
  running.pending->on_end(
      [&] { ended = std::make_shared<DeviceTimeMarker>(c10::Device(test::kTestDevice, 0)); });
  ASSERT_TRUE(ended) << "callbacks of the Future come at once, on a stream behind it";
  EXPECT_FALSE(ended->passed());
  EXPECT_FALSE(device_streams().progress());
  ASSERT_TRUE(ended->passed());
  EXPECT_GT(ended->since(before), 0);
  EXPECT_EQ(seen_.size(), 3U);
}

TEST_F(Streamed, WhatStreamsUseIsKeptUntilTheyHaveDoneIt) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> left = held;
  const auto running = run(std::move(held));
  EXPECT_FALSE(left.expired());
  EXPECT_FALSE(device_streams().progress());
  await(*running.pending);
  run();
  EXPECT_TRUE(left.expired());
  EXPECT_FALSE(device_streams().progress());
}

TEST_F(Streamed, AnEndWaitsForWhatIsInFlight) {
  run();
  streamed_.reset();
  EXPECT_EQ(seen_.size(), 3U);
}

TEST_F(Streamed, AGroupThatFailsInBetweenIsTold) {
  auto held = std::make_shared<int>();
  const std::weak_ptr<int> left = held;
  fails_at_ = 1;
  EXPECT_THROW(run(std::move(held)), std::runtime_error);
  EXPECT_FALSE(left.expired()) << "factors are being computed";
  after_the_caller("again");
  EXPECT_FALSE(device_streams().progress());
  EXPECT_EQ(seen_, (Seen{{"lefts", 2}, {"rights", 5}, {"again", 1}}));
  const auto running = run();
  EXPECT_TRUE(left.expired());
  EXPECT_FALSE(device_streams().progress());
  await(*running.pending);
}

}  // namespace
}  // namespace ringdist
