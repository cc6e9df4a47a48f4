#include "control/connection_manager.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/describe.h"
#include "base/log.h"
#include "os/socket.h"

namespace ringdist {
namespace {

using State = ControlConnection::State;

// A dial fails if its hello is not answered within this time.
constexpr Duration kDialTimeout = std::chrono::seconds(2);
constexpr Duration kHelloTimeout = std::chrono::seconds(5);  // from the accept to the hello
// A held connection is closed if its group does not appear here within this time.
constexpr Duration kHoldTimeout = std::chrono::seconds(60);
constexpr Duration kClosingTimeout = std::chrono::seconds(2);  // for the rest of the output
constexpr size_t kMaxStrangers = 256;     // connections of a process that have not been admitted
constexpr size_t kMaxUnknownFrame = 256;  // bytes: a hello is smaller
constexpr size_t kMaxAnswer = 4096;       // bytes: the answer to a hello may be a text
constexpr int kMaxReads = 64;             // reads of one connection in a row
constexpr uint64_t kHandshakeKey = 7;     // in the epoll set
constexpr Duration kLogRefusedEvery =
    std::chrono::seconds(1);  // pause between lines of log_refused()

bool may_come_while_held(FrameType type) {
  return type == FrameType::kHeartbeat || type == FrameType::kExits || type == FrameType::kLeft;
}

}  // namespace

Error ConnectionManager::listen(const std::string& unix_name, const std::string& local_ip,
                                const Config::PortRange& ports) {
  if (tls_key_) {
    auto started = Handshakes::start();
    if (!started.ok()) return started.error();
    handshakes_ = std::move(started.value());
    if (Error e = epoll_.add(handshakes_->event_fd(), EPOLLIN, kHandshakeKey)) return e;
  }
  return listeners_.listen(unix_name, local_ip, ports);
}

void ConnectionManager::handle(uint64_t key, uint32_t events) {
  if (listeners_.handle(key, accept_)) return;
  if (key == kHandshakeKey) return on_handshakes();
  auto found = connections_.find(key);
  if (found == connections_.end()) return;
  ControlConnection& c = *found->second;
  if (c.state == State::kConnecting) return connected(c);
  if ((events & EPOLLOUT) && !c.closed() && !c.stream.flush()) c.broken = true;
  if (events & ~static_cast<uint32_t>(EPOLLOUT)) receive(c);
  update_interest(c);
}

void ConnectionManager::tick(Duration local_heartbeat) {
  listeners_.tick();
  static const auto heartbeat = make_frame(FrameType::kHeartbeat);
  for (auto& [key, connection] : connections_) {
    ControlConnection& c = *connection;
    expire(c);
    const Duration interval = c.kind == LinkKind::kLocal ? local_heartbeat : kControlHeartbeat;
    // Not every iteration of the loop may send one, and a late iteration must not skip one.
    if (c.reached() && now_ - c.last_sent >= interval * 3 / 4) send(c, heartbeat);
  }
}

void ConnectionManager::expire(ControlConnection& c) {
  Duration age = now_ - c.since;
  if (c.state == State::kClosing && (age > kClosingTimeout || !c.stream.has_output())) {
    close(c);
  } else if (c.dialed) {
    bool waiting = c.state == State::kConnecting || c.state == State::kGreeting;
    if (waiting && age > kDialTimeout) fail(c, ETIMEDOUT, "no answer on its control socket");
  } else if ((c.state == State::kGreeting && age > kHelloTimeout) ||
             (c.state == State::kHeld && age > kHoldTimeout)) {
    close(c);
  }
}

void ConnectionManager::reap() {
  for (auto& [key, c] : connections_) {
    if (!c->broken || c->closed()) continue;
    receive(*c);  // its last frames may be waiting
    fail(*c, EPIPE, "connection broken, or the other side does not read");
  }
  std::erase_if(connections_, [this](const auto& entry) {
    if (entry.second->closed()) by_peer_.forget(*entry.second);
    return entry.second->closed();
  });
}

ControlConnection& ConnectionManager::add(Stream socket, LinkKind kind, bool dialed) {
  uint64_t key = next_key_++;
  auto made = std::make_unique<ControlConnection>(std::move(socket), kind, dialed, key, now_);
  return *connections_.emplace(key, std::move(made)).first->second;
}

void ConnectionManager::dial(LinkKind kind, uint64_t peer, const std::string& address,
                             uint64_t nonce, const std::string& source) {
  ConnectAttempt attempt =
      kind == LinkKind::kLocal ? connect_unix(address) : connect_tcp(address, source);
  ControlConnection& c = add(Stream(std::move(attempt.fd)), kind, true);
  by_peer_.lead_to(peer, c);
  c.hello = {my_id_, peer, nonce};
  c.state = State::kConnecting;
  if (attempt.failure) {
    fail(c, attempt.failure->errno_value, attempt.failure->error.message());
  } else if (Error e =
                 epoll_.add(c.stream.fd().get(), attempt.pending ? EPOLLOUT : EPOLLIN, c.key)) {
    fail(c, ENOMEM, e.message());
  } else if (!attempt.pending) {
    connected(c);
  } else {
    c.wants_output = true;
  }
}

void ConnectionManager::connected(ControlConnection& c) {
  if (int problem = connect_result(c.stream.fd()); problem != 0) {
    fail(c, problem, std::string("connect: ") + std::strerror(problem));
    return;
  }
  if (c.kind == LinkKind::kLocal) {
    auto who = peer_credentials(c.stream.fd());
    if (!who.ok() || who.value().uid != geteuid()) {
      fail(c, EACCES, who.ok() ? "it runs as another user" : who.error().message());
      return;
    }
    c.pid = who.value().pid;
    c.uid = who.value().uid;
  }
  limit_tcp_timeout(c);
  if (!tls_key_) return begin_greeting(c);
  if (!c.stream.is_encrypted()) {
    if (c.kind == LinkKind::kTcp) epoll_.remove(c.stream.fd().get());
    Stream encrypted(c.stream.release().release(), tls_key_->dial(my_id_, c.hello.to));
    if (c.kind == LinkKind::kTcp) return handshakes_->add(c.key, std::move(encrypted));
    c.stream = FramedSocket(std::move(encrypted));
  }
  const int problem = c.stream.establish();
  if (problem == 0) return begin_greeting(c);
  if (problem != EAGAIN) return fail(c, problem, c.stream.describe(problem));
  c.wants_output = c.stream.has_output();
  if (epoll_.modify(c.stream.fd().get(), c.stream.events(), c.key))
    fail(c, ENOMEM, "epoll refused");
}

void ConnectionManager::begin_greeting(ControlConnection& c) {
  c.state = State::kGreeting;
  c.last_sent = now_;
  c.stream.limit_frames(kMaxAnswer);
  send(c, c.hello.frame());
}

void ConnectionManager::limit_tcp_timeout(const ControlConnection& c) {
  if (c.kind == LinkKind::kTcp)
    break_after(c.stream.fd(), std::chrono::duration_cast<Milliseconds>(tcp_timeout_).count());
}

void ConnectionManager::on_handshakes() {
  for (Handshakes::Ended& ended : handshakes_->take()) {
    if (ended.key == 0) {
      accept(std::move(ended.stream), LinkKind::kTcp, {});
      continue;
    }
    const auto found = connections_.find(ended.key);
    if (found == connections_.end() || found->second->state != State::kConnecting) continue;
    ControlConnection& c = *found->second;
    c.stream = FramedSocket(std::move(ended.stream));
    if (ended.problem != 0)
      fail(c, ended.problem, ended.reason);
    else if (Error e = epoll_.add(c.stream.fd().get(), EPOLLIN, c.key))
      fail(c, ENOMEM, e.message());
    else
      begin_greeting(c);
  }
  for (auto& [key, c] : connections_)
    if (!c->closed() && c->stream.has_input()) receive(*c);
}

// Processes of this user could take this thread's time without handshakes, too.
void ConnectionManager::accept(Fd fd, LinkKind kind, const PeerCredentials& who) {
  Stream stream(std::move(fd), tls_key_ ? tls_key_->accept(my_id_) : nullptr);
  if (kind == LinkKind::kTcp && tls_key_) return handshakes_->add(0, std::move(stream));
  accept(std::move(stream), kind, who);
}

void ConnectionManager::accept(Stream socket, LinkKind kind, const PeerCredentials& who) {
  make_room(kind, who.pid);
  ControlConnection& c = add(std::move(socket), kind, false);
  c.stream.limit_frames(kMaxUnknownFrame);
  c.pid = who.pid;
  c.uid = who.uid;
  limit_tcp_timeout(c);
  if (epoll_.add(c.stream.fd().get(), EPOLLIN, c.key)) return close(c);
  if (c.stream.has_input()) receive(c);
}

// Makes room for one more stranger. The oldest one without a hello is closed, or else the oldest.
void ConnectionManager::make_room(LinkKind kind, int pid) {
  for (;;) {
    size_t strangers = 0;
    ControlConnection* oldest = nullptr;
    for (auto& [key, c] : connections_) {
      if (!c->is_stranger() || c->kind != kind || c->pid != pid) continue;
      ++strangers;
      bool silent = c->state == State::kGreeting;
      if (!oldest || (silent && oldest->state != State::kGreeting)) oldest = c.get();
    }
    if (strangers < kMaxStrangers) return;
    bool silent = oldest->state == State::kGreeting;
    if (silent) receive(*oldest);  // its hello may not have been read yet
    if (!silent || oldest->state == State::kGreeting) close(*oldest);
  }
}

// Membership messages inside a host need no answer of a process that may stand still, so they are
// sealed one by one instead of encrypted by TLS.
void ConnectionManager::expect_plain(ControlConnection& c) {
  if (!c.is_stranger() || c.kind != LinkKind::kLocal || !c.stream.begins_plain()) return;
  c.stream = FramedSocket(c.stream.release().release());
  c.stream.limit_frames(kMaxUnknownFrame);
}

void ConnectionManager::receive(ControlConnection& c) {
  expect_plain(c);
  for (int reads = 0; reads < kMaxReads && !c.closed(); ++reads) {
    auto input = c.stream.receive();
    if (input == FramedSocket::Input::kEmpty) return;
    if (input == FramedSocket::Input::kEnd) {
      if (c.is_stranger() && c.stream.peer() == 0) log_refused(c, c.stream.failure());
      const std::string why = c.stream.failure();
      return fail(c, 0, why.empty() ? "connection closed by the other side" : "TLS: " + why);
    }
    take_frames(c);
  }
  // No event follows for what TLS has read ahead.
  if (!c.closed() && c.stream.has_input()) handshakes_->wake();
}

void ConnectionManager::log_refused(const ControlConnection& c, const std::string& why) {
  if (why.empty() || now_ - logged_at_ < kLogRefusedEvery) return;
  logged_at_ = now_;
  const std::string from =
      c.kind == LinkKind::kTcp ? remote_address(c.stream.fd()) : "pid " + std::to_string(c.pid);
  log(LogLevel::kWarn, "control plane: refused a connection from " + from + ": TLS: " + why);
}

void ConnectionManager::take_frames(ControlConnection& c) {
  while (!c.closed() && c.state != State::kClosing) {  // while closing, only the end matters
    const auto frame = c.stream.next();
    if (!frame.ok()) fail(c, EPROTO, frame.error().message());
    if (!frame.ok() || !frame.value()) return;
    dispatch(c, *frame.value());
  }
}

// Requests for a dump or a snapshot need no greeting. While a connection is held, the side that
// dialed receives heartbeats and the end of the other process; the other side ignores heartbeats.
void ConnectionManager::dispatch(ControlConnection& c, const Frame& frame) {
  if (tls_key_ && !c.stream.is_encrypted() && frame.type != FrameType::kMembershipHello) {
    log_refused(c, "it does not use TLS");
    return close(c);
  }
  const bool asks =
      frame.type == FrameType::kDumpRequest || frame.type == FrameType::kSnapshotRequest;
  if (asks && !c.dialed && c.kind == LinkKind::kLocal) {
    delegate_.on_frame(c, frame);
  } else if (c.open() || (c.dialed && c.state == State::kHeld && may_come_while_held(frame.type))) {
    delegate_.on_frame(c, frame);
  } else if (!(c.state == State::kHeld && frame.type == FrameType::kHeartbeat)) {
    greet(c, frame);
  }
}

ControlConnection* ConnectionManager::find(uint64_t peer, LinkKind kind) const {
  ControlConnection* best = nullptr;
  for (ControlConnection* c : by_peer_.to(peer)) {
    if (c->kind != kind || c->closed() || c->state == State::kClosing || c->is_stranger()) continue;
    if (!best || c->open()) best = c;
  }
  return best;
}

void ConnectionManager::send(ControlConnection& c, ConstBytes frame) {
  if (c.closed() || c.broken) return;
  c.last_sent = now_;
  c.broken = !c.stream.send(frame);
  update_interest(c);
}

void ConnectionManager::update_interest(ControlConnection& c) {
  if (c.closed() || c.wants_output == c.stream.has_output()) return;
  if (c.state == State::kConnecting) return;
  c.wants_output = c.stream.has_output();
  uint32_t events = c.wants_output ? EPOLLIN | EPOLLOUT : EPOLLIN;
  if (epoll_.modify(c.stream.fd().get(), events, c.key)) fail(c, ENOMEM, "epoll refused");
}

void ConnectionManager::close(ControlConnection& c) {
  if (c.closed()) return;
  if (c.stream.fd()) epoll_.remove(c.stream.fd().get());
  c.stream.close();
  c.state = State::kClosed;
}

void ConnectionManager::close_after_output(ControlConnection& c) {
  if (c.closed()) return;
  c.state = State::kClosing;
  c.since = now_;
  if (!c.stream.has_output()) close(c);
}

// The connection closes before the report, because the delegate may dial the peer again.
void ConnectionManager::fail(ControlConnection& c, int errno_value, const std::string& reason) {
  if (c.closed()) return;
  bool report = c.state != State::kClosing && (c.dialed || c.open());
  bool was_reached = c.reached();
  close(c);
  if (report) delegate_.on_closed(c, was_reached, errno_value, reason);
}

bool ConnectionManager::drain_connections() {
  bool all = listeners_.accept_local(accept_);
  for (auto& [key, c] : connections_) {
    if (!c->is_stranger() || c->kind != LinkKind::kLocal || c->state != State::kGreeting) continue;
    receive(*c);
  }
  return all;
}

}  // namespace ringdist
