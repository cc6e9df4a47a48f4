// Host ops that one rank starts for the messages of a stream, and when. For all ranks together see
// tests/cpp/conformance/cuda_path_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "cuda/stream/host_path.h"
#include "support/fake_cuda.h"
#include "support/fake_runner_delegate.h"
#include "support/fake_streams.h"

namespace ringdist::gpu {
namespace {

using Memory = std::vector<std::byte>;

class HostLinkTest : public testing::Test {
 protected:
  // The message has 10 bytes, an encoding of 4 + `first` bytes in 20, 2 bytes, an encoding of 4 +
  // `second` bytes in 16, and 3 bytes.
  static constexpr size_t kBefore = 10, kRoom = 20, kBetween = 2, kOther = 16, kAfter = 3;
  static constexpr size_t kSize = kBefore + kRoom + kBetween + kOther + kAfter;

  static DeviceBytes varying(Memory& memory) {
    return {memory.data(), memory.size(), {{kBefore, kRoom}, {kBefore + kRoom + kBetween, kOther}}};
  }
  static Memory message(uint32_t first, uint32_t second) {
    Memory out(kSize);
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>(i + 1);
    std::memcpy(out.data() + kBefore, &first, sizeof first);
    std::memcpy(out.data() + kBefore + kRoom + kBetween, &second, sizeof second);
    return out;
  }
  // Returns the used parts of the message.
  static Memory used(const Memory& message, size_t first, size_t second) {
    const auto at = [&](size_t i) { return message.begin() + static_cast<ptrdiff_t>(i); };
    Memory out(at(0), at(kBefore + 4 + first));
    constexpr size_t kNext = kBefore + kRoom;
    out.insert(out.end(), at(kNext), at(kNext + kBetween + 4 + second));
    out.insert(out.end(), at(kSize - kAfter), at(kSize));
    return out;
  }
  static Memory bytes_of(const Buffer& buffer) {
    Memory out(static_cast<size_t>(buffer.count()));
    buffer.copy_to(0, buffer.count(), out.data());
    return out;
  }
  static void fill(const Buffer& buffer, const Memory& bytes) {
    ASSERT_EQ(static_cast<size_t>(buffer.count()), bytes.size());
    buffer.copy_from(0, buffer.count(), bytes.data());
  }
  FakeRunnerDelegate::Started& started(size_t i) { return group_.started.at(i); }

  FakeStreams streams_;
  FakeCuda cuda_{streams_};
  FakeRunnerDelegate group_{0, 2};
  const HostPathState staging_{cuda_,
                               0,
                               2,
                               std::make_shared<RevocableGroup>(group_),
                               std::make_shared<PinnedPool>(cuda_),
                               std::make_shared<FirstError>()};
  void* const stream_ = streams_.make();
  KeptAlive held_;
  HostLink link_{staging_, stream_, held_};
};

TEST_F(HostLinkTest, MessagesOfOneSizeGoAtOnce) {
  Memory out(8, std::byte{1}), in(8);
  ASSERT_FALSE(link_.begin());
  ASSERT_FALSE(link_.send(1, {out.data(), out.size()}, stream_));
  ASSERT_FALSE(link_.receive(1, {in.data(), in.size()}, stream_));
  ASSERT_FALSE(link_.end());
  EXPECT_TRUE(streams_.progress());
  ASSERT_EQ(group_.started.size(), 2u);
  EXPECT_EQ(bytes_of(started(0).op.input), out);
  fill(started(1).op.output, Memory(8, std::byte{2}));
  for (auto& one : group_.started) one.ended({});
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(in, Memory(8, std::byte{2}));
}

TEST_F(HostLinkTest, WhatVariesGoesWithoutItsRoom) {
  const uint32_t lengths[] = {9, 0};
  Memory out = message(9, 0), in(kSize);
  const Memory theirs = message(16, 5);
  ASSERT_FALSE(link_.begin());
  ASSERT_FALSE(link_.send(1, varying(out), stream_));
  ASSERT_FALSE(link_.receive(1, varying(in), stream_));
  ASSERT_FALSE(link_.end());
  EXPECT_TRUE(streams_.progress());
  ASSERT_EQ(group_.started.size(), 2u) << "lengths, before they are known";
  Memory sent(sizeof lengths);
  std::memcpy(sent.data(), lengths, sizeof lengths);
  EXPECT_EQ(bytes_of(started(0).op.input), sent);
  const uint32_t other[] = {16, 5};
  std::memcpy(sent.data(), other, sizeof other);
  fill(started(1).op.output, sent);
  for (size_t i = 0; i < 2; ++i) started(i).ended({});
  EXPECT_TRUE(streams_.progress());
  ASSERT_EQ(group_.started.size(), 4u);
  EXPECT_EQ(bytes_of(started(2).op.input), used(out, 9, 0));
  fill(started(3).op.output, used(theirs, 16, 5));
  for (size_t i = 2; i < 4; ++i) started(i).ended({});
  EXPECT_FALSE(streams_.progress());
  EXPECT_EQ(used(in, 16, 5), used(theirs, 16, 5));
}

TEST_F(HostLinkTest, ALengthBeyondItsRoomTakesAllOfIt) {
  Memory in(kSize);
  ASSERT_FALSE(link_.begin());
  ASSERT_FALSE(link_.receive(1, varying(in), stream_));
  ASSERT_FALSE(link_.end());
  EXPECT_TRUE(streams_.progress());
  fill(started(0).op.output, Memory(8, std::byte{0xff}));
  started(0).ended({});
  EXPECT_TRUE(streams_.progress());
  ASSERT_EQ(group_.started.size(), 2u);
  EXPECT_EQ(static_cast<size_t>(started(1).op.output.count()), kSize);
  started(1).ended({});
  EXPECT_FALSE(streams_.progress());
}

}  // namespace
}  // namespace ringdist::gpu
