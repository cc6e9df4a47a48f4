// A transport that sends nothing: it holds back the ends of its sends until the test wants them.
#pragma once

#include <utility>
#include <vector>

#include "transport/transport.h"

namespace ringdist {

class FakeTransport final : public Transport {
 public:
  explicit FakeTransport(Receiver& receiver) : receiver_(receiver) {}

  // Ends every send so far, as a transport does whose receiver has got it.
  void complete() {
    for (const Ticket ticket : std::exchange(held_, {})) receiver_.on_sent(ticket, {});
  }
  size_t held() const { return held_.size(); }

  std::string_view name() const override { return "fake"; }
  size_t max_payload() const override { return memory_.size(); }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId) const override { return true; }
  void send(ContextId, ConstBytes, ConstBytes, Ticket ticket) override { hold(ticket); }
  std::optional<Bytes> reserve(size_t bytes) override { return Bytes(memory_).first(bytes); }
  void commit(Bytes, size_t, std::span<const Outgoing> to) override {
    for (const Outgoing& out : to) hold(out.ticket);
  }
  bool progress() override { return false; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  void drop_peer(ContextId) override {}
  void ask_delivery() override {}
  bool delivered() const override { return true; }
  void close() override { complete(); }

 private:
  void hold(Ticket ticket) {
    if (ticket != kNoTicket) held_.push_back(ticket);
  }

  Receiver& receiver_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(size_t{1} << 18);
  std::vector<Ticket> held_;
};

}  // namespace ringdist
