// A transport that sends nothing: it holds back the ends of its sends until the test wants them.
#pragma once

#include <utility>
#include <vector>

#include "transport/transport.h"

namespace ringdist {

class FakeTransport final : public Transport {
 public:
  // Ends every send so far, as a transport does whose receiver has got it.
  void complete() {
    for (const SendDone& done : std::exchange(held_, {})) done({});
  }
  size_t held() const { return held_.size(); }
  bool asked_who_is_reached = false;

  std::string_view name() const override { return "fake"; }
  size_t max_payload() const override { return memory_.size(); }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId) const override {
    const_cast<FakeTransport*>(this)->asked_who_is_reached = true;
    return true;
  }
  void send(ContextId, ConstBytes, ConstBytes, SendDone done) override { hold(std::move(done)); }
  std::optional<Bytes> reserve(size_t bytes) override { return Bytes(memory_).first(bytes); }
  void commit(Bytes, size_t, std::span<const Outgoing>, SendDone done) override {
    hold(std::move(done));
  }
  bool progress() override { return false; }
  int event_fd() const override { return -1; }
  bool arm() override { return true; }
  void drop_peer(ContextId) override {}
  void ask_delivery() override {}
  bool delivered() const override { return true; }
  void close() override { complete(); }

 private:
  void hold(SendDone done) { held_.push_back(std::move(done)); }

  std::vector<std::byte> memory_ = std::vector<std::byte>(size_t{1} << 18);
  std::vector<SendDone> held_;
};

}  // namespace ringdist
