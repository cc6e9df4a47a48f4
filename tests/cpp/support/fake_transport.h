// Fake transport that sends nothing. It stores messages by destination and completes their sends
// at once, or when the test calls end_sends(). Not thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace ringdist {

class FakeTransport final : public Transport {
 public:
  struct Message {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
  };

  // `on_sent` is called with the id of each completed send.
  explicit FakeTransport(std::function<void(SendId)> on_sent) : on_sent_(std::move(on_sent)) {}

  std::map<ContextId, std::deque<Message>> sent;
  bool ends_sends = true;
  bool reaches_all = true;
  bool takes_no_memory = false;  // refuses to reserve memory; messages are not stored

  // Completes all sends so far, like a transport with a receiver that has got them.
  void end_sends() {
    for (const SendId send_id : std::exchange(held_, {})) on_sent_(send_id);
  }
  size_t held() const { return held_.size(); }
  int reserved() const { return reserved_; }  // reserved and not committed yet

  std::string_view name() const override { return "fake"; }
  size_t max_payload() const override { return memory_.size(); }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId) const override { return reaches_all; }
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override {
    if (takes_no_memory) return;
    sent[peer].push_back({{header.begin(), header.end()}, {payload.begin(), payload.end()}});
    if (send_id == kNoSendId) return;
    held_.push_back(send_id);
    if (ends_sends) end_sends();
  }
  std::optional<Bytes> reserve(size_t bytes) override {
    ++reserved_;
    return Bytes(memory_).first(bytes);
  }
  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override {
    --reserved_;
    for (const OutgoingMessage& out : to)
      send(out.peer, out.header, reserved.first(used), out.send_id);
  }
  bool progress() override { return false; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  void drop_peer(ContextId) override {}
  void begin_flush() override {}
  bool flushed() const override { return true; }
  void close() override { end_sends(); }

 private:
  const std::function<void(SendId)> on_sent_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(size_t{1} << 18);
  std::vector<SendId> held_;
  int reserved_ = 0;
};

}  // namespace ringdist
