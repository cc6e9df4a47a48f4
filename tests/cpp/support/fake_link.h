// Fake link between the devices of a test's ranks, over support/fake_streams.h. A stream proceeds
// when all messages of an exchange have met their counterparts, and the fake checks that both
// sides have equal sizes. All ranks share one FakeNetworkModel, and each has a FakeLink. Used only
// inside FakeStreams::progress() and by the ranks' own calls.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cuda/stream/device_link.h"
#include "support/fake_streams.h"

namespace ringdist {

class FakeNetworkModel {
 public:
  struct Part {
    int peer;
    bool sends;
    gpu::DeviceBytes message;
    bool moved = false;
  };

  // Registers that `rank` has reached the part. Copies the message when both sides have arrived.
  void meet(int rank, const std::shared_ptr<Part>& part) {
    const auto pair = part->sends ? std::pair(rank, part->peer) : std::pair(part->peer, rank);
    auto& others = part->sends ? receives_[pair] : sends_[pair];
    if (others.empty()) {
      (part->sends ? sends_[pair] : receives_[pair]).push_back(part);
      return;
    }
    const auto other = others.front();
    others.pop_front();
    const gpu::DeviceBytes& from = part->sends ? part->message : other->message;
    const gpu::DeviceBytes& to = part->sends ? other->message : part->message;
    SCOPED_TRACE("messages of " + std::to_string(pair.first) + " to " +
                 std::to_string(pair.second));
    ASSERT_EQ(from.size, to.size);
    ASSERT_EQ(from.varying.size(), to.varying.size());
    std::memcpy(to.data, from.data, from.size);
    for (const gpu::VariablePart& one : to.varying) spoil(to.data + one.at, one.room);
    part->moved = other->moved = true;
  }
  bool empty() const {
    for (const auto* waiting : {&sends_, &receives_})
      for (const auto& [pair, parts] : *waiting)
        if (!parts.empty()) return false;
    return true;
  }

 private:
  // Overwrites the bytes behind the encoding, because a link does not have to transmit them.
  static void spoil(std::byte* encoding, size_t room) {
    uint32_t length = 0;
    std::memcpy(&length, encoding, sizeof length);
    ASSERT_LE(sizeof length + length, room);
    std::fill(encoding + sizeof length + length, encoding + room, std::byte{0xee});
  }

  using Waiting = std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>>;
  Waiting sends_;
  Waiting receives_;
};

class FakeLink final : public gpu::DeviceLink {
 public:
  FakeLink(FakeNetworkModel& wire, FakeStreams& streams, int rank)
      : wire_(wire), streams_(streams), rank_(rank) {}

  Error begin() override {
    EXPECT_TRUE(parts_.empty());
    return {};
  }
  Error send(int peer, const gpu::DeviceBytes& message, gpu::Stream stream) override {
    return add(peer, true, message, stream);
  }
  Error receive(int peer, const gpu::DeviceBytes& message, gpu::Stream stream) override {
    return add(peer, false, message, stream);
  }
  Error end() override {
    auto parts = std::make_shared<Parts>(std::exchange(parts_, {}));
    auto met = std::make_shared<bool>(false);
    streams_.push(stream_, {[this, parts, met] {
                              if (!std::exchange(*met, true))
                                for (const auto& part : *parts) wire_.meet(rank_, part);
                              for (const auto& part : *parts)
                                if (!part->moved) return false;
                              return true;
                            },
                            {}});
    return {};
  }

 private:
  using Parts = std::vector<std::shared_ptr<FakeNetworkModel::Part>>;

  Error add(int peer, bool sends, const gpu::DeviceBytes& message, gpu::Stream stream) {
    EXPECT_GT(message.size, 0u);
    stream_ = stream;
    parts_.push_back(
        std::make_shared<FakeNetworkModel::Part>(FakeNetworkModel::Part{peer, sends, message}));
    return {};
  }

  FakeNetworkModel& wire_;
  FakeStreams& streams_;
  const int rank_;
  gpu::Stream stream_ = nullptr;
  Parts parts_;
};

}  // namespace ringdist
