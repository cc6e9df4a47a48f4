// One rank's ops by way of the host: data that the host gets and when, results that come back, and
// memory that is kept. For all ranks together see tests/cpp/conformance/cuda_path_test.cc.
#include "cuda/stream/host_path.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "codec/codec_map.h"
#include "support/fake_cuda.h"
#include "support/fake_runner_delegate.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

using Ints = std::vector<int32_t>;

class HostPathTest : public testing::Test {
 protected:
  DeviceOp op(Collective kind, Ints* input, Ints* output) {
    DeviceOp out;
    out.request.kind = kind;
    out.request.dtype = DType::kInt32;
    out.request.count = 3;
    out.input = out.output = Buffer(sizeof(int32_t));
    if (input != nullptr) add(*input, out.input);
    if (output != nullptr) add(*output, out.output);
    return out;
  }
  // Appends the values as two spans.
  static void add(Ints& values, Buffer& to) {
    to.append(values.data(), 1);
    to.append(values.data() + 1, static_cast<int64_t>(values.size()) - 1);
  }
  void enqueue(const DeviceOp& op) {
    ASSERT_FALSE(path_->prepare({}, op.request, TimePoint::max()));
    const Error error = path_->enqueue(op, stream_, held_);
    ASSERT_FALSE(error) << error.what();
  }
  static Ints values_of(const Buffer& buffer) {
    Ints out(static_cast<size_t>(buffer.count()));
    buffer.copy_to(0, buffer.count(), reinterpret_cast<std::byte*>(out.data()));
    return out;
  }
  static void fill(const Buffer& buffer, Ints values) {
    buffer.copy_from(0, buffer.count(), reinterpret_cast<const std::byte*>(values.data()));
  }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  FakeRunnerDelegate group_{1, 2};
  std::unique_ptr<HostPath> path_ = std::make_unique<HostPath>(cuda_, group_);
  void* const stream_ = streams_.make();
  KeptAlive held_;
};

TEST_F(HostPathTest, AnAllreduceGoesToTheHostAndBack) {
  Ints values{1, 2, 3};
  enqueue(op(Collective::kAllreduce, nullptr, &values));
  EXPECT_TRUE(group_.started.empty()) << "before the stream came to it";
  EXPECT_TRUE(streams_.progress());
  ASSERT_EQ(group_.started.size(), 1u);
  auto& [host, ended] = group_.started[0];
  EXPECT_EQ(host.request.kind, Collective::kAllreduce);
  EXPECT_EQ(values_of(host.output), (Ints{1, 2, 3}));
  fill(host.output, {7, 8, 9});
  EXPECT_TRUE(streams_.progress()) << "the stream waits for the host";
  ended({});
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(values, (Ints{7, 8, 9}));
  EXPECT_FALSE(path_->check());
}

TEST_F(HostPathTest, TheHostIsToldOnceWhereTheDeviceIs) {
  Ints values{1, 2, 3};
  const OpSpec request = op(Collective::kAllreduce, nullptr, &values).request;
  for (const int device : {1, 0}) ASSERT_FALSE(path_->prepare({device}, request, TimePoint::max()));
  EXPECT_EQ(group_.near, std::vector<std::string>{"fake:1"});
}

TEST_F(HostPathTest, WhatIsNotReadStaysWhereItIs) {
  Ints from{1, 2, 3}, to{4, 5, 6, 7, 8, 9};
  enqueue(op(Collective::kAllgather, &from, &to));
  EXPECT_TRUE(streams_.progress());
  auto& [host, ended] = group_.started.at(0);
  EXPECT_EQ(values_of(host.input), from);
  EXPECT_EQ(host.output.count(), 6);
  fill(host.output, {10, 20, 30, 40, 50, 60});
  ended({});
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(to, (Ints{10, 20, 30, 40, 50, 60}));
}

// Rank 1 is not the root.
TEST_F(HostPathTest, OutputsThatOthersGetStayAsTheyWere) {
  Ints values{1, 2, 3};
  enqueue(op(Collective::kReduce, nullptr, &values));
  EXPECT_TRUE(streams_.progress());
  fill(group_.started.at(0).op.output, {7, 8, 9});
  group_.started[0].ended({});
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(values, (Ints{1, 2, 3}));
}

TEST_F(HostPathTest, SendsOfCallersMeetTheirLikeWithAnyTag) {
  Ints values{1, 2, 3};
  DeviceOp send = op(Collective::kPointToPoint, &values, nullptr);
  constexpr int32_t kTag = std::numeric_limits<int32_t>::max();
  send.request.envelope = Envelope{0, kTag, true};
  enqueue(send);
  EXPECT_FALSE(streams_.progress()) << "it waits for its receiver";
  const Envelope& asked = *group_.started.at(0).op.request.envelope;
  EXPECT_EQ(asked.tag, kTag);
  EXPECT_EQ(asked.origin, Envelope::TagSpace::kDeviceCaller);
  group_.started[0].ended({});
  EXPECT_FALSE(streams_.progress());
}

TEST_F(HostPathTest, AnErrorOfTheHostLetsTheStreamGoAndIsTold) {
  Ints values{1, 2, 3};
  enqueue(op(Collective::kAllreduce, nullptr, &values));
  EXPECT_TRUE(streams_.progress());
  group_.started.at(0).ended(Error(ErrorKind::kPeerLost, "made up"));
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(path_->check().kind(), ErrorKind::kPeerLost);
}

TEST_F(HostPathTest, AGroupThatRefusesLetsTheStreamGo) {
  Ints values{1, 2, 3};
  enqueue(op(Collective::kAllreduce, nullptr, &values));
  group_.fails = Error(ErrorKind::kAborted, "made up");
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(path_->check().kind(), ErrorKind::kAborted);
}

TEST_F(HostPathTest, AStreamThatComesAfterTheGroupHasEndedGoesOn) {
  Ints values{1, 2, 3};
  enqueue(op(Collective::kAllreduce, nullptr, &values));
  path_->end();
  EXPECT_FALSE(streams_.progress());
  EXPECT_TRUE(group_.started.empty());
}

TEST_F(HostPathTest, NamesWhatIsTooLongForALength) {
  OpSpec request;
  request.dtype = DType::kFloat32;
  auto map = std::make_shared<CodecMap>();
  constexpr int64_t kCount = int64_t{1} << 30;
  map->parts.push_back({0, kCount, parse_codec_pair("lossless", 2).value()});
  request.codec_map = map;
  const Error error = path_->prepare({}, request, TimePoint::max());
  EXPECT_EQ(error.kind(), ErrorKind::kNotSupported);
  EXPECT_NE(error.message().find("'lossless' of 1073741824 elements"), std::string::npos)
      << error.message();
  map->parts.back().count = kCount / 2;
  EXPECT_FALSE(path_->prepare({}, request, TimePoint::max()));
}

TEST_F(HostPathTest, FailsWhereCudaDoes) {
  Ints values{1, 2, 3};
  const DeviceOp asked = op(Collective::kAllreduce, nullptr, &values);
  ASSERT_FALSE(path_->prepare({}, asked.request, TimePoint::max()));
  for (const char* call : {"copy", "call", "hold"}) {
    cuda_.fail_next(call);
    EXPECT_EQ(path_->enqueue(asked, stream_, held_).kind(), ErrorKind::kSystem) << call;
  }
  EXPECT_FALSE(streams_.progress());
}

}  // namespace
}  // namespace ringdist::gpu
