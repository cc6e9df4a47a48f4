// The way between the devices of a test's ranks, by streams that are not there
// (support/fake_streams.h): a stream goes on when all messages of an exchange have met, and checks
// that they are alike. One FakeWire for all ranks, a FakeLink for each.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "cuda/stream/link.h"
#include "support/fake_streams.h"

namespace ringdist {

class FakeWire {
 public:
  struct Part {
    int peer;
    bool sends;
    std::byte* data;
    size_t bytes;
    bool moved = false;
  };

  // A rank has come to the part; it moves when both have.
  void meet(int rank, const std::shared_ptr<Part>& part) {
    const auto pair = part->sends ? std::pair(rank, part->peer) : std::pair(part->peer, rank);
    auto& others = part->sends ? receives_[pair] : sends_[pair];
    if (others.empty()) {
      (part->sends ? sends_[pair] : receives_[pair]).push_back(part);
      return;
    }
    const auto other = others.front();
    others.pop_front();
    ASSERT_EQ(part->bytes, other->bytes) << "messages of " << pair.first << " to " << pair.second;
    std::byte* const to = part->sends ? other->data : part->data;
    std::memcpy(to, part->sends ? part->data : other->data, part->bytes);
    part->moved = other->moved = true;
  }
  bool empty() const {
    for (const auto* waiting : {&sends_, &receives_})
      for (const auto& [pair, parts] : *waiting)
        if (!parts.empty()) return false;
    return true;
  }

 private:
  using Waiting = std::map<std::pair<int, int>, std::deque<std::shared_ptr<Part>>>;
  Waiting sends_;
  Waiting receives_;
};

class FakeLink final : public gpu::Link {
 public:
  FakeLink(FakeWire& wire, FakeStreams& streams, int rank)
      : wire_(wire), streams_(streams), rank_(rank) {}

  Error begin() override {
    EXPECT_TRUE(parts_.empty());
    return {};
  }
  Error send(int peer, const void* data, size_t bytes, gpu::Stream stream) override {
    return add(peer, true, const_cast<void*>(data), bytes, stream);
  }
  Error receive(int peer, void* data, size_t bytes, gpu::Stream stream) override {
    return add(peer, false, data, bytes, stream);
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
  using Parts = std::vector<std::shared_ptr<FakeWire::Part>>;

  Error add(int peer, bool sends, void* data, size_t bytes, gpu::Stream stream) {
    EXPECT_GT(bytes, 0u);
    stream_ = stream;
    parts_.push_back(std::make_shared<FakeWire::Part>(
        FakeWire::Part{peer, sends, static_cast<std::byte*>(data), bytes}));
    return {};
  }

  FakeWire& wire_;
  FakeStreams& streams_;
  const int rank_;
  gpu::Stream stream_ = nullptr;
  Parts parts_;
};

}  // namespace ringdist
