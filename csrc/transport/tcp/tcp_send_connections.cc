// The connections of a TcpSendChannel: dials, greetings, and what happens when one breaks.
#include <linux/tcp.h>  // glibc's has no tcpi_bytes_acked
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "transport/tcp/tcp_send_channel.h"

namespace ringdist::tcp {
namespace {

constexpr Duration kFirstPause = Milliseconds(5);  // before the second dial
constexpr Duration kLongestPause = Milliseconds(500);
constexpr Duration kGreetingTime = std::chrono::seconds(2);  // from a dial to its answer
// If a port refuses connections for this time, the peer has closed it.
constexpr Duration kRefusedTime = Milliseconds(200);
// A connection breaks if sent data is not confirmed for this part of the peer timeout.
constexpr int kUserTimeoutParts = 4;
// With several connections, a socket has at most this many bytes that are not sent, and one breaks
// earlier if the bytes of another one arrive.
constexpr int kMostUnsent = 256 << 10;
constexpr Duration kStuckTime = Milliseconds(300);

}  // namespace

void TcpSendChannel::dial(Connection& by, TimePoint now) {
  by.tick_at = now + kGreetingTime;
  by.state = State::kConnecting;
  ConnectAttempt attempt = connect_tcp(by.path.address, by.path.own_ip);
  by.socket =
      Stream(std::move(attempt.fd), tls_key_ ? tls_key_->dial(hello_.from, hello_.to) : nullptr);
  if (attempt.failure)
    return connection_lost(by, "connecting to " + by.path.address, attempt.failure->errno_value,
                           now);
  const auto timeout = std::chrono::duration_cast<Milliseconds>(peer_timeout_).count();
  break_after(by.socket.fd(), timeout / kUserTimeoutParts);
  if (has_several()) limit_unsent(by.socket.fd(), kMostUnsent);
  if (!attempt.pending) return connected(by, now);
  watch(by, EPOLLOUT);
}

void TcpSendChannel::dial_all(TimePoint now) {
  for (Connection& one : connections_)
    if (!broken_ && one.state == State::kIdle && !one.tick_at) dial(one, now);
}

void TcpSendChannel::connected(Connection& by, TimePoint now) {
  const int problem = by.socket.establish();
  if (problem == EAGAIN) return watch(by, by.socket.events());
  if (problem != 0) return connection_lost(by, "connecting to " + by.path.address, problem, now);
  by.state = State::kGreeting;
  hello_.path = static_cast<uint32_t>(by.index);
  const std::vector<std::byte> hello = hello_.frame();
  const ssize_t sent = by.socket.write(hello);
  // A new socket has room for a hello.
  if (sent != static_cast<ssize_t>(hello.size()))
    return connection_lost(by, "sending a hello", sent < 0 ? errno : EMSGSIZE, now);
  watch(by, by.socket.events());
}

bool TcpSendChannel::on_event(size_t path, TimePoint now) {
  if (path >= connections_.size()) return false;
  Connection& of = connections_[path];
  if (of.state == State::kConnecting) {
    connected(of, now);
    return false;
  }
  if (of.state == State::kIdle) return false;
  bool any = receive(of, now);
  while (of.socket.has_input()) any |= receive(of, now);
  if (of.state == State::kOpen && (!of.is_written() || next_ < records_.size())) flush(of, now);
  return any;
}

bool TcpSendChannel::receive(Connection& from, TimePoint now) {
  std::array<std::byte, 512> bytes;
  const ssize_t got = from.socket.read(bytes);
  if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK || passes(errno)))
    return false;
  if (got <= 0) {
    connection_lost(from, got == 0 ? "the peer closed the connection" : "receiving",
                    got == 0 ? 0 : errno, now);
    return false;
  }
  from.input.insert(from.input.end(), bytes.begin(), bytes.begin() + got);
  const size_t whole = from.input.size() / sizeof(uint64_t);
  if (whole == 0) return false;
  // The counts grow, so only the last one matters.
  uint64_t count = 0;
  std::memcpy(&count, from.input.data() + (whole - 1) * sizeof count, sizeof count);
  from.input.erase(from.input.begin(),
                   from.input.begin() + static_cast<ptrdiff_t>(whole * sizeof count));
  if (from.state == State::kGreeting) {
    from.state = State::kOpen;
    from.tick_at.reset();
    refused_since_.reset();
    progressed_at_ = now;
    if (count < first_ && !has_several()) {
      break_channel(Error(ErrorKind::kProtocol, "the peer has forgotten messages"));
      return false;
    }
  }
  const bool any = acknowledged(count, now);
  distribute(now);  // more may be on the way now
  return any;
}

void TcpSendChannel::connection_lost(Connection& lost, const std::string& what, int errno_value,
                                     TimePoint now) {
  const std::string why = errno_value ? ": " + lost.socket.describe(errno_value) : "";
  close_socket(lost);
  lost.tick_at.reset();
  for (Kept& one : records_)
    if (one.path == lost.index) {
      one.path = -1;
      on_the_way_ -= one.cost();
    }
  next_ = 0;
  skip_assigned();
  if (records_.empty()) return;  // a later send dials
  const auto is_open = [](const Connection& one) { return one.state == State::kOpen; };
  const bool others = std::ranges::any_of(connections_, is_open);
  if (!others && !failing_since_) failing_since_ = now;
  // A failure on this side proves nothing about the peer's ports.
  const bool refused = errno_value == ECONNREFUSED;
  if (others) refused_since_.reset();
  if (!others && refused && !refused_since_) refused_since_ = now;
  if (!others && (now - *failing_since_ >= peer_timeout_ ||
                  (refused && now - *refused_since_ >= kRefusedTime))) {
    return break_channel(Error(ErrorKind::kPeerLost, "the connection broke: " + what + why));
  }
  lost.tick_at = now + lost.pause;
  lost.pause = std::clamp(2 * lost.pause, kFirstPause, kLongestPause);
  if (others)
    distribute(now);
  else
    dial_all(now);
}

// Bytes for which the peer's kernel has no room are not on the network, so a peer that is busy does
// not count. If no connection gets anything through, then its host may be stopped.
bool TcpSendChannel::is_stuck(const Connection& one, TimePoint now) {
  for (Connection& of : connections_) {
    tcp_info info{};
    socklen_t size = sizeof info;
    if (!of.socket || getsockopt(of.socket.fd().get(), IPPROTO_TCP, TCP_INFO, &info, &size) != 0)
      continue;
    const bool waits = info.tcpi_unacked > 0 || info.tcpi_probes > 0;
    const uint64_t before = std::exchange(of.confirmed, info.tcpi_bytes_acked);
    if (!waits || of.confirmed != before) of.moved_at = now;
  }
  const auto moves = [&](const Connection& of) {
    return of.state == State::kOpen && now - of.moved_at < kStuckTime;
  };
  return !moves(one) && std::ranges::any_of(connections_, moves);
}

bool TcpSendChannel::is_silent(const Connection& one, TimePoint now) const {
  return now - progressed_at_ >= longest_silence_ && one.is_written() &&
         std::ranges::any_of(records_, [&](const Kept& kept) { return kept.path == one.index; }) &&
         unread(one.socket.fd()) == 0;
}

void TcpSendChannel::tick(TimePoint now) {
  for (Connection& one : connections_) {
    if (!one.tick_at || now < *one.tick_at) continue;
    one.tick_at.reset();
    if (unsendable_)
      return break_channel(Error(ErrorKind::kSystem, "no memory to keep a message that was sent"));
    if (one.state == State::kIdle) {
      dial(one, now);
    } else if (one.state != State::kOpen) {
      connection_lost(one, "no answer from " + one.path.address, ETIMEDOUT, now);
    } else if (has_several() && is_stuck(one, now)) {
      connection_lost(one, "nothing arrives at " + one.path.address, ETIMEDOUT, now);
    } else if (is_silent(one, now)) {
      connection_lost(one, one.path.address + " acknowledges nothing", ETIMEDOUT, now);
    } else {
      const TimePoint silent_at = progressed_at_ + longest_silence_;
      if (!records_.empty())
        one.tick_at = has_several()     ? now + kStuckCheck
                      : silent_at > now ? silent_at
                                        : now + longest_silence_;
      flush(one, now);
    }
  }
}

std::optional<TimePoint> TcpSendChannel::due() const {
  std::optional<TimePoint> out;
  for (const Connection& one : connections_)
    if (one.tick_at && (!out || *one.tick_at < *out)) out = one.tick_at;
  return out;
}

void TcpSendChannel::watch(Connection& of, uint32_t events) {
  if (of.watched == events) return;
  const uint64_t key = key_ + static_cast<uint64_t>(of.index);
  const Error error = of.watched == 0 ? epoll_.add(of.socket.fd().get(), events, key)
                                      : epoll_.modify(of.socket.fd().get(), events, key);
  if (error) return break_channel(error);
  of.watched = events;
}

void TcpSendChannel::close_socket(Connection& of) {
  // In a forked child the numbers may be those of other files.
  if (std::exchange(of.watched, 0) != 0 && !mark_.forked()) epoll_.remove(of.socket.fd().get());
  of.socket.close();
  of.input.clear();
  of.queue.clear();
  of.rest.clear();
  of.written = 0;
  of.confirmed = 0;
  of.state = State::kIdle;
}

}  // namespace ringdist::tcp
