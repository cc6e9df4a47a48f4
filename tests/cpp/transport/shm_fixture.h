// Ends of transport `shm` that one thread drives.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <concepts>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "os/random.h"
#include "support/send_ends.h"
#include "transport/shm/shm_transport.h"

namespace ringdist::test {

inline bool readable(const Transport& transport, int milliseconds) {
  pollfd entry{transport.event_fd(), POLLIN, 0};
  return poll(&entry, 1, milliseconds) == 1;
}

inline constexpr auto kDeadline = std::chrono::seconds(20);

struct End final : TransportDelegate {
  const ContextId id;
  SendEnds sends;  // outlives the transport, which reports completions to it
  std::vector<std::vector<std::byte>> kept;  // payloads, which the transport may read later
  std::unique_ptr<Transport> transport;
  std::vector<std::vector<std::byte>> got;
  std::vector<std::pair<ContextId, Error>> lost;
  std::function<void(const Payload&)> reading;  // called for each message
  int sent = 0;
  int failed = 0;

  explicit End(ContextId its_id = random_id(), std::shared_ptr<const TlsKey> key = nullptr)
      : id(its_id) {
    TransportConfig config;
    config.context_id = id;
    config.tls_key = std::move(key);
    auto made = shm_create(config, *this);
    EXPECT_TRUE(made.ok()) << made.error().what();
    transport = std::move(made.value());
  }
  void on_message(ContextId, ConstBytes header, const Payload& payload) override {
    EXPECT_EQ(header.size(), sizeof(int));
    if (reading) reading(payload);
    got.emplace_back(payload.bytes().begin(), payload.bytes().end());
  }
  void on_sent(SendId send_id, const Error& error) override { sends.end(send_id, error); }
  void on_connection_lost(std::string_view, ContextId peer, const Error& cause) override {
    lost.emplace_back(peer, cause);
  }

  void knows(End& other) {
    ASSERT_FALSE(transport->add_peer(other.id, other.transport->address()));
  }
  SendId send(End& to, ConstBytes payload) {
    static const int kHeader = 7;
    const SendId send_id = sends.begin([this](const Error& error) { ++(error ? failed : sent); });
    transport->send(to.id, std::as_bytes(std::span(&kHeader, 1)), payload, send_id);
    return send_id;
  }
  // A temporary lives as long as this end, since a transport need not copy a payload in send().
  template <std::same_as<std::vector<std::byte>> Bytes>
  SendId send(End& to, Bytes&& payload) {
    return send(to, ConstBytes(kept.emplace_back(std::move(payload))));
  }
};

inline bool together(std::initializer_list<End*> ends, const std::function<bool()>& done) {
  const TimePoint deadline = Clock::now() + kDeadline;
  while (!done()) {
    if (Clock::now() > deadline) return false;
    for (End* end : ends) end->transport->progress();
  }
  return true;
}

// Sends a first message, which creates the link.
inline void connect(End& from, End& to) {
  from.knows(to);
  to.knows(from);
  const size_t before = to.got.size();
  from.send(to, {});
  ASSERT_TRUE(together({&from, &to}, [&] { return to.got.size() > before; }));
  to.got.clear();
  from.sent = 0;
}

inline std::vector<std::byte> numbered(size_t size, int number) {
  return std::vector<std::byte>(size, static_cast<std::byte>(number));
}

}  // namespace ringdist::test
