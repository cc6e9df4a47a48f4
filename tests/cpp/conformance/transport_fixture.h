// Two ends of a transport of the registry, for tests that each row must pass.
#pragma once

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "os/random.h"
#include "support/data_listener.h"
#include "support/laid_bytes.h"
#include "support/send_ends.h"
#include "support/sim/sim_transport.h"
#include "transport/local/local_transport.h"
#include "transport/registry.h"

namespace ringdist {

inline constexpr auto kDeadline = std::chrono::seconds(20);

inline std::vector<std::byte> pattern(size_t size, int salt) {
  std::vector<std::byte> out(size);
  for (size_t i = 0; i < size; ++i) out[i] = static_cast<std::byte>(i * 31 + salt);
  return out;
}

struct Inbox final : TransportDelegate {
  struct Got {
    std::vector<std::byte> header;
    std::vector<std::byte> payload;
    ContextId from;  // 0 if the transport does not report it
  };
  std::vector<Got> got;
  std::vector<ContextId> lost;
  SendEnds sends;
  void on_sent(SendId send_id, const Error& error) override { sends.end(send_id, error); }
  void on_message(ContextId from, ConstBytes header, const Payload& payload) override {
    got.push_back(
        {{header.begin(), header.end()}, {payload.bytes().begin(), payload.bytes().end()}, from});
  }
  void on_connection_lost(std::string_view, ContextId peer, const Error&) override {
    lost.push_back(peer);
  }
};

inline bool wants_system_ucx() {
  const char* ucx = std::getenv("RINGDIST_UCX");
  return ucx && std::string_view(ucx) == "system";
}

struct End {
  DataListener listener;
  TransportConfig config;
  Inbox inbox;
  std::unique_ptr<Transport> transport;

  End(const TransportRow& row, const TransportConfig& networks, int addresses = 1)
      : listener(addresses), config(networks) {
    config.context_id = random_id();
    config.interface_name = "lo";
    config.system_ucx = wants_system_ucx();
    config.tcp_addresses = listener.addresses();
    config.data_port = listener.port();
    auto made = row.create(config, inbox);
    EXPECT_TRUE(made.ok()) << made.error().what();
    if (made.ok()) transport = std::move(made.value());
  }
  void send(ContextId peer, const std::vector<std::byte>& header, ConstBytes payload,
            SendEnds::Done done) {
    transport->send(peer, header, payload, inbox.sends.begin(std::move(done)));
  }
  bool progress_until(const std::function<bool()>& done) {
    const TimePoint deadline = Clock::now() + kDeadline;
    while (!done()) {
      if (Clock::now() > deadline) return false;
      if (!transport->progress()) std::this_thread::yield();
    }
    return true;
  }
};

// Calls `end` with each connected TCP socket of this process. Returns how often it returned true.
// Other threads open and close sockets, so ThreadSanitizer sees a race unless `end` makes raw
// system calls in place of connect(), recv() and the like.
inline int for_tcp_connections(const std::function<bool(int fd)>& end) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    sockaddr_storage peer{};
    socklen_t length = sizeof peer;
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    if (peer.ss_family == AF_INET || peer.ss_family == AF_INET6) count += end(fd);
  }
  return count;
}

inline TransportConfig networks() {
  TransportConfig out;
  out.local_network = make_local_network({7, std::chrono::microseconds(100)});
  return out;
}

// The network that the ends of kSimRow share.
inline std::shared_ptr<SimNetwork>& sim_network() {
  static std::shared_ptr<SimNetwork> network;
  return network;
}

// The simulated network serves tests only, so the registry has no row for it.
inline constexpr TransportRow kSimRow{
    .name = "sim",
    .description = "a computed network with a virtual clock",
    .viable = [](const TransportConfig&) { return Error(); },
    .create = [](const TransportConfig& config,
                 TransportDelegate& receiver) -> Result<std::unique_ptr<Transport>> {
      if (!sim_network())
        sim_network() = std::make_shared<SimNetwork>(
            SimOptions{.jitter = std::chrono::microseconds(100), .moves_by_progress = true});
      auto made = SimTransport::create(config, sim_network(), receiver, /*event_fd=*/true);
      if (!made.ok()) return made.error();
      return std::unique_ptr<Transport>(std::move(made.value()));
    }};

// A transport, and a flag that places payloads in memory shared between processes.
using Param = std::tuple<const TransportRow*, bool>;

class TransportConformance : public testing::TestWithParam<Param> {
 protected:
  const TransportRow& row_ = *std::get<0>(GetParam());
  const TransportConfig networks_ = networks();
  std::deque<LaidBytes>
      memory_;  // declared before the ends, which may read it until they are destroyed
  End a_{row_, networks_};
  End b_{row_, networks_};

  // Copies bytes to be sent into the kind of memory under test.
  ConstBytes lay(const std::vector<std::byte>& bytes) {
    return memory_.emplace_back(bytes, std::get<1>(GetParam())).bytes();
  }

  ~TransportConformance() override { sim_network().reset(); }
  void SetUp() override {
    ASSERT_TRUE(a_.transport && b_.transport);
    ASSERT_FALSE(a_.transport->add_peer(b_.config.context_id, b_.transport->address()));
    ASSERT_FALSE(b_.transport->add_peer(a_.config.context_id, a_.transport->address()));
  }
  bool both_until(const std::function<bool()>& done) {
    return a_.progress_until([&] {
      b_.transport->progress();
      return done();
    });
  }
};

}  // namespace ringdist
