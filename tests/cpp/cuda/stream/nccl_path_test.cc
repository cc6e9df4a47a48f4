// One rank's ops over NCCL when another rank does not arrive. For all ranks together see
// tests/cpp/conformance/cuda_path_test.cc.
#include "cuda/stream/nccl_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <thread>

#include "cuda/stream/event_watcher.h"
#include "cuda/stream/stream_runner.h"
#include "support/fake_cuda.h"
#include "support/fake_nccl.h"
#include "support/fake_runner_delegate.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

class NcclPathTest : public testing::Test {
 protected:
  // The other rank joins the communicator of the whole group and nothing else. The group's
  // exchange carries the id of that communicator.
  void prepare(StreamRunner& runner, const DeviceOp& op) {
    std::thread other([this] {
      while (nccl_.calls("init_rank") == 0) std::this_thread::yield();
      NcclUniqueId id;
      std::ranges::copy(FakeNccl::first_id(), id.internal.begin());
      NcclComm comm = nullptr;
      (void)nccl_.init_rank(&comm, 2, id, 1);
    });
    const Error error =
        runner.prepare(op.device_stream, op.request, Clock::now() + std::chrono::seconds(20));
    other.join();
    ASSERT_FALSE(error) << error.what();
  }
  DeviceOp allreduce() {
    DeviceOp op;
    op.request.kind = Collective::kAllreduce;
    op.request.dtype = DType::kInt32;
    op.request.reduce_op = ReduceOp::kSum;
    op.request.count = 1;
    op.text = "all_reduce #1";
    op.output = Buffer(sizeof(value_));
    op.output.append(&value_, 1);
    op.device_stream = {0, streams_.make()};
    return op;
  }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  FakeNccl nccl_{streams_};
  FakeRunnerDelegate group_{0, 2};
  const std::shared_ptr<EventWatcher> watch_ =
      std::make_shared<EventWatcher>(cuda_, EventWatcher::Polls::kByCaller);
  int32_t value_ = 7;
};

TEST_F(NcclPathTest, WhatAnAbortCutsOffEndsWithAnError) {
  StreamRunner runner(cuda_, watch_, std::make_shared<NcclPath>(cuda_, nccl_, group_));
  const DeviceOp op = allreduce();
  prepare(runner, op);
  std::optional<Error> ended;
  ASSERT_TRUE(runner.start(op, [&](Error error) { ended = error; }).ok());
  EXPECT_TRUE(streams_.progress()) << "the other rank does not come";
  watch_->poll();
  EXPECT_FALSE(ended);
  runner.abort();
  EXPECT_FALSE(streams_.progress()) << "the stream waits though NCCL was aborted";
  watch_->poll();
  ASSERT_TRUE(ended);
  EXPECT_EQ(ended->kind(), ErrorKind::kAborted);
}

TEST_F(NcclPathTest, NamesTagsThatNcclHasNot) {
  NcclPath way(cuda_, nccl_, group_);
  OpSpec send;
  send.kind = Collective::kPointToPoint;
  send.envelope = Envelope{1, 3, true};
  const Error error = way.prepare({}, send, TimePoint::max());
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("tag 3"), std::string::npos) << error.message();
}

TEST_F(NcclPathTest, TellsWhatNcclRefuses) {
  StreamRunner runner(cuda_, watch_, std::make_shared<NcclPath>(cuda_, nccl_, group_));
  const DeviceOp op = allreduce();
  prepare(runner, op);
  for (const char* call : {"all_reduce", "group_end"}) {
    nccl_.fail_next(call, NcclResult::kSystemError);
    const Error error = runner.start(op, [](const Error&) {}).error();
    EXPECT_EQ(error.kind(), ErrorKind::kSystem) << call;
    EXPECT_NE(error.message().find("all_reduce #1"), std::string::npos) << error.message();
  }
  EXPECT_FALSE(streams_.progress());
  watch_->poll();
}

// The first call between two ranks blocks until the other rank has called, too.
TEST_F(NcclPathTest, WaitsForWhatNcclHasBegunUntilTheOpsDeadline) {
  StreamRunner runner(cuda_, watch_, std::make_shared<NcclPath>(cuda_, nccl_, group_));
  DeviceOp op = allreduce();
  prepare(runner, op);
  nccl_.set_lag(1 << 30);
  op.deadline = Clock::now() + std::chrono::milliseconds(50);
  const Error error = runner.start(op, [](const Error&) {}).error();
  EXPECT_EQ(error.kind(), ErrorKind::kTimeout);
  EXPECT_NE(error.message().find("all_reduce #1"), std::string::npos) << error.message();
  EXPECT_GE(Clock::now(), op.deadline);
  nccl_.set_lag(200);  // a few queries per millisecond
  op.deadline = TimePoint::max();
  EXPECT_TRUE(runner.start(op, [](const Error&) {}).ok());
  runner.abort();
  EXPECT_FALSE(streams_.progress());
  watch_->poll();
}

TEST_F(NcclPathTest, RefusesACaptureOfCompressedOps) {
  const NcclPath way(cuda_, nccl_, group_);
  OpSpec request;
  EXPECT_FALSE(way.captured(request));
  request.codec_map = std::make_shared<CodecMap>();
  const Error error = way.captured(request);
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("a compressed all_reduce cannot"), std::string::npos);
}

}  // namespace
}  // namespace ringdist::gpu
