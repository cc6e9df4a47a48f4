// Two streams that are connected, for tests of TLS.
#pragma once

#include <cerrno>
#include <utility>

#include "base/clock.h"
#include "os/socket.h"
#include "os/stream.h"

namespace ringdist {

struct StreamPair {
  Stream dialed;
  Stream accepted;
};

// A connection over the loopback.
inline std::pair<Fd, Fd> connection() {
  const Fd listener = std::move(listen_tcp("127.0.0.1", 0).value());
  ConnectAttempt attempt = connect_tcp(local_address(listener).value());
  Fd accepted;
  while (!accepted) accepted = accept_connection(listener);
  return {std::move(attempt.fd), std::move(accepted)};
}

// Runs both handshakes. Returns the results of the two sides.
inline std::pair<int, int> shake(StreamPair& pair) {
  std::pair<int, int> out(EAGAIN, EAGAIN);
  const TimePoint until = Clock::now() + std::chrono::seconds(20);
  while ((out.first == EAGAIN || out.second == EAGAIN) && Clock::now() < until) {
    if (out.first == EAGAIN) out.first = pair.dialed.establish();
    if (out.second == EAGAIN) out.second = pair.accepted.handshake();
  }
  return out;
}

}  // namespace ringdist
