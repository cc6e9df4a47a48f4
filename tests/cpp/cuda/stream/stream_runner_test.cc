// StreamRunner: order of streams, ends of ops, captures. It uses a DevicePath that copies on the
// stream, and an EventWatcher that the test polls.
#include "cuda/stream/stream_runner.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "support/fake_cuda.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

// A path that halves one float on the device.
struct HalvingPath final : DevicePath {
  explicit HalvingPath(FakeCuda& cuda, FakeStreams& streams) : cuda(cuda), streams(streams) {}
  Error prepare(const DeviceStream&, const OpSpec&, TimePoint) override { return refuses; }
  Error enqueue(const DeviceOp& op, Stream stream, KeptAlive& held) override {
    if (fails) return fails;
    auto* const at = reinterpret_cast<float*>(op.output.contiguous(0, 1).data());
    held.push_back(std::make_shared<int>(0));
    last_held = held.back();
    used.push_back(stream);
    return cuda.run({{Divide{at, 2.0f, 1}}}, stream);
  }
  Error check() override { return wrong; }
  Error captured(const OpSpec&) const override { return uncaptured; }
  void abort() override { aborted = true; }

  FakeCuda& cuda;
  FakeStreams& streams;
  Error refuses, fails, wrong, uncaptured;
  bool aborted = false;
  std::weak_ptr<void> last_held;
  std::vector<Stream> used;
};

class StreamRunnerTest : public testing::Test {
 protected:
  DeviceOp op_on(void* stream, int peer = -1, bool sends = true) {
    DeviceOp out;
    out.request.kind = peer < 0 ? Collective::kAllreduce : Collective::kPointToPoint;
    if (peer >= 0) out.request.envelope = Envelope{peer, 0, sends};
    out.output = Buffer(sizeof(float));
    out.output.append(&value_, 1);
    out.text = "all_reduce #1";
    out.device_stream = {0, stream};
    out.keep_alive = std::make_shared<int>(0);
    memory_ = out.keep_alive;
    return out;
  }
  Result<std::shared_ptr<DeviceWork>> start(DeviceOp op) {
    if (Error error = runner_.prepare(op.device_stream, op.request, TimePoint::max())) return error;
    return runner_.start(std::move(op), [this](Error error) { ended_.push_back(error); });
  }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  const std::shared_ptr<EventWatcher> watch_ =
      std::make_shared<EventWatcher>(cuda_, EventWatcher::Polls::kByCaller);
  const std::shared_ptr<HalvingPath> path_ = std::make_shared<HalvingPath>(cuda_, streams_);
  StreamRunner runner_{cuda_, watch_, path_};
  void* const caller_ = streams_.make();
  float value_ = 0;
  std::weak_ptr<void> memory_;
  std::vector<Error> ended_;
};

TEST_F(StreamRunnerTest, RunsAfterTheCallersStreamAndBeforeWhatComesAfterTheWork) {
  streams_.push(caller_, {{}, [this] { value_ = 8; }});
  const auto work = start(op_on(caller_));
  ASSERT_TRUE(work.ok());
  void* const other = streams_.make();
  ASSERT_FALSE(work.value()->order(other));
  std::optional<float> seen;
  streams_.push(other, {{}, [&] { seen = value_; }});
  EXPECT_EQ(value_, 0) << "the host waited";
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(seen, 4);
}

TEST_F(StreamRunnerTest, EndsWhenTheDeviceHasAndKeepsMemoryUntilThen) {
  ASSERT_TRUE(start(op_on(caller_)).ok());
  EXPECT_TRUE(watch_->poll());
  EXPECT_TRUE(ended_.empty());
  EXPECT_FALSE(memory_.expired());
  EXPECT_FALSE(path_->last_held.expired());
  EXPECT_FALSE(streams_.progress());
  EXPECT_FALSE(watch_->poll());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_FALSE(ended_[0]);
  EXPECT_TRUE(memory_.expired());
  EXPECT_TRUE(path_->last_held.expired());
}

TEST_F(StreamRunnerTest, GivesCollectivesAndEachDirectionOfEachPeerStreamsOfTheirOwn) {
  for (const int peer : {-1, 1, 2, 1, -1}) ASSERT_TRUE(start(op_on(caller_, peer)).ok());
  ASSERT_TRUE(start(op_on(caller_, 1, /*sends=*/false)).ok());
  ASSERT_EQ(path_->used.size(), 6u);
  EXPECT_NE(path_->used[1], path_->used[5]);
  EXPECT_EQ(path_->used[0], path_->used[4]);
  EXPECT_EQ(path_->used[1], path_->used[3]);
  EXPECT_NE(path_->used[0], path_->used[1]);
  EXPECT_NE(path_->used[1], path_->used[2]);
}

TEST_F(StreamRunnerTest, EndsWithWhatWentWrong) {
  ASSERT_TRUE(start(op_on(caller_)).ok());
  EXPECT_FALSE(streams_.progress());
  path_->wrong = Error(ErrorKind::kPeerLost, "made up");
  EXPECT_FALSE(watch_->poll());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].kind(), ErrorKind::kPeerLost);
}

TEST_F(StreamRunnerTest, EndsWithAnErrorOfTheDevice) {
  ASSERT_TRUE(start(op_on(caller_)).ok());
  cuda_.fail_next("reached");
  EXPECT_FALSE(watch_->poll());
  ASSERT_EQ(ended_.size(), 1u);
  EXPECT_EQ(ended_[0].kind(), ErrorKind::kSystem);
}

TEST_F(StreamRunnerTest, RefusesWhatTheWayDoes) {
  path_->refuses = Error(ErrorKind::kNotSupported, "made up");
  EXPECT_EQ(start(op_on(caller_)).error().kind(), ErrorKind::kNotSupported);
  EXPECT_TRUE(streams_.idle(caller_));
}

// Work that an op put on the stream before it failed may still use the op's memory.
TEST_F(StreamRunnerTest, KeepsTheMemoryOfAnOpThatDidNotStart) {
  path_->fails = Error(ErrorKind::kSystem, "made up");
  EXPECT_FALSE(start(op_on(caller_)).ok());
  EXPECT_TRUE(watch_->poll());
  EXPECT_FALSE(memory_.expired());
  EXPECT_FALSE(streams_.progress());
  EXPECT_FALSE(watch_->poll());
  EXPECT_TRUE(memory_.expired());
  EXPECT_TRUE(ended_.empty());
}

TEST_F(StreamRunnerTest, FailsWhereCudaDoes) {
  for (const char* call : {"use", "make_event", "make_stream", "record", "wait"}) {
    StreamRunner fresh(cuda_, watch_, path_);
    cuda_.fail_next(call);
    const DeviceOp op = op_on(caller_);
    const Error prepared = fresh.prepare(op.device_stream, op.request, TimePoint::max());
    const Error error = prepared ? prepared : fresh.start(op, [](const Error&) {}).error();
    EXPECT_EQ(error.kind(), ErrorKind::kSystem) << call;
    EXPECT_NE(error.message().find(call), std::string::npos) << error.message();
  }
}

TEST_F(StreamRunnerTest, OfACaptureEndsAtOnce) {
  ASSERT_TRUE(start(op_on(caller_)).ok());  // creates objects that cannot be created in a capture
  EXPECT_FALSE(streams_.progress());
  EXPECT_FALSE(watch_->poll());
  cuda_.begin_capture(caller_);
  const auto work = start(op_on(caller_));
  ASSERT_TRUE(work.ok());
  EXPECT_EQ(ended_.size(), 2u);
  EXPECT_FALSE(watch_->poll()) << "an event of a capture cannot be asked for";
  EXPECT_FALSE(work.value()->order(caller_));  // adds the stream to the capture
  cuda_.end_capture();
}

TEST_F(StreamRunnerTest, RefusesACaptureOfWhatMustBeMade) {
  cuda_.begin_capture(caller_);
  const Error error = start(op_on(caller_)).error();
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("before the capture"), std::string::npos);
  cuda_.end_capture();
}

TEST_F(StreamRunnerTest, RefusesACaptureOfAWayThatCannot) {
  ASSERT_TRUE(start(op_on(caller_)).ok());
  path_->uncaptured = Error(ErrorKind::kNotSupported, "of no graph");
  ASSERT_TRUE(start(op_on(caller_)).ok());
  cuda_.begin_capture(caller_);
  EXPECT_EQ(start(op_on(caller_)).error().message(), "of no graph");
  cuda_.end_capture();
}

TEST_F(StreamRunnerTest, AbortsItsWay) {
  runner_.abort();
  EXPECT_TRUE(path_->aborted);
}

}  // namespace
}  // namespace ringdist::gpu
