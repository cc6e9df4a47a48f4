#include "membership/membership_transport.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"
#include "os/socket.h"

namespace ringdist {
namespace {

// Limit of queued messages; further ones are dropped, because their senders repeat them.
constexpr size_t kMostWaiting = 16;
// Unread bytes in a socket up to which other messages are sent; the rest is for certain ones.
constexpr size_t kRoomForCertain = 65536;
constexpr Duration kDialTime = std::chrono::seconds(2);  // limit of a dial
// A process that is ending may accept connections for a while, so redials are quick at first. One
// that keeps accepting and closing is dialed ever more rarely.
constexpr Duration kFirstRedial = Milliseconds(2);
constexpr Duration kLongestPause = Milliseconds(200);
constexpr Duration kShort = Milliseconds(100);  // a connection that lasted less doubles the pause
constexpr int kBreakAfter = 3000;  // ms without confirmation, after which a TCP connection breaks

// A connection is closed after this time without use: first outbound, then inbound.
constexpr Duration kIdleLine = std::chrono::seconds(2);
constexpr Duration kForgottenAfter = std::chrono::seconds(60);

// A process dials one connection at a time, and another one while the end of the first is under
// way.
constexpr size_t kMostFromOne = 4;
constexpr Duration kLogRefusals = std::chrono::seconds(1);  // pause between lines of pass_on()
constexpr size_t kMostIncoming = 16384;  // there are more than members of most groups
// A process without the key may give each connection another process id.
constexpr size_t kMostUnproven = 256;

// Messages are sealed under this name inside a host, where a process need not answer to get them.
std::string seal_name(ProcessId from, ProcessId to) {
  return "membership message from " + std::to_string(from) + " to " + std::to_string(to);
}

}  // namespace

MessageOrigin MessageOrigin::of(const Fd& connection, ProcessId process, LinkKind kind) {
  MessageOrigin out{process, kind};
  if (kind == LinkKind::kTcp)
    out.ip = without_port(remote_address(connection));
  else if (const auto who = peer_credentials(connection); who.ok())
    out.pid = who.value().pid;
  return out;
}

OutboundConnection::OutboundConnection(ProcessId self, PeerAddress to, const Epoll& epoll,
                                       uint64_t key, const TlsKey* tls_key)
    : self_(self), to_(std::move(to)), epoll_(epoll), key_(key), tls_key_(tls_key) {}

bool OutboundConnection::send(uint64_t group_id, ConstBytes message, bool certain, TimePoint now) {
  look(group_id, now);
  if (state_ == State::kOpen) return write(message, certain, now);
  if (state_ == State::kConnecting && waiting_.size() < kMostWaiting)
    waiting_.emplace_back(message.begin(), message.end());
  return false;
}

void OutboundConnection::look(uint64_t group_id, TimePoint now) {
  used_at_ = now;
  group_id_ = group_id;
  if (state_ == State::kClosed && now - dialed_at_ >= pause_) dial(now);
}

void OutboundConnection::dial(TimePoint now) {
  check(state_ == State::kClosed, "dialed twice");
  dialed_at_ = now;
  lost_ = false;
  const bool local = to_.kind == LinkKind::kLocal;
  ConnectAttempt attempt =
      local ? connect_unix(to_.unix_name) : connect_tcp(to_.tcp_address, to_.own_ip);
  if (attempt.failure) return fail(attempt.failure->errno_value, now);
  if (local) {
    const auto who = peer_credentials(attempt.fd);
    if (!who.ok()) return;
    // Another user has the name, which is free only once the process has closed its socket.
    if (who.value().uid != geteuid()) return fail(ECONNREFUSED, now);
  }
  const bool encrypts = !local && tls_key_ != nullptr;
  stream_.emplace(
      Stream(std::move(attempt.fd), encrypts ? tls_key_->dial(self_, to_.process) : nullptr));
  state_ = State::kConnecting;
  if (epoll_.add(stream_->fd().get(), attempt.pending ? EPOLLOUT : EPOLLIN, key_)) return close();
  if (!attempt.pending) opened(now);
}

void OutboundConnection::opened(TimePoint now) {
  if (const int problem = stream_->establish(); problem == EAGAIN)
    return (void)epoll_.modify(stream_->fd().get(), stream_->events(), key_);
  else if (problem != 0)
    return fail(problem, now);
  if (to_.kind == LinkKind::kTcp) break_after(stream_->fd(), kBreakAfter);
  (void)epoll_.modify(stream_->fd().get(), EPOLLIN, key_);
  state_ = State::kOpen;
  if (!stream_->send(
          ControlHello{self_, to_.process, group_id_}.frame(FrameType::kMembershipHello)))
    return fail(0, now);
  for (auto& message : std::exchange(waiting_, {})) (void)write(message, /*certain=*/false, now);
}

// While an earlier message is not in the kernel completely, no other one is sent; its sender
// repeats it.
bool OutboundConnection::write(ConstBytes message, bool certain, TimePoint now) {
  if (!stream_->flush()) {
    fail(0, now);
    return false;
  }
  if (stream_->has_output() || (!certain && unread(stream_->fd()) > kRoomForCertain)) return false;
  const bool seals = tls_key_ != nullptr && to_.kind == LinkKind::kLocal;
  const auto sealed =
      seals ? tls_key_->seal(message, seal_name(self_, to_.process)) : std::vector<std::byte>();
  if (!stream_->send(make_frame(FrameType::kMembership, seals ? ConstBytes(sealed) : message))) {
    fail(0, now);
    return false;
  }
  return !stream_->has_output();
}

void OutboundConnection::on_event(TimePoint now) {
  if (!stream_) return;
  if (state_ == State::kConnecting) return opened(now);
  // The other side sends nothing on this connection, so an event means its end. If it does send, it
  // is none of ours.
  if (stream_->receive() == FramedSocket::Input::kEmpty) return;
  fail(0, now);
  tick(now);
}

void OutboundConnection::tick(TimePoint now) {
  if (const auto at = next(); at && now >= *at) return dial(now);
  if (state_ == State::kConnecting && now - dialed_at_ > kDialTime) return close();
  if (state_ == State::kOpen && stream_->has_output() && !stream_->flush()) fail(0, now);
}

// Only a lost connection inside the host is dialed without a message, to find out if the process
// still listens.
std::optional<TimePoint> OutboundConnection::next() const {
  if (state_ != State::kClosed || !lost_) return std::nullopt;
  return dialed_at_ + pause_;
}

void OutboundConnection::fail(int errno_value, TimePoint now) {
  close();
  const bool was_short = now - dialed_at_ < kShort;
  pause_ = was_short ? std::clamp(pause_ * 2, kFirstRedial, kLongestPause) : kFirstRedial;
  if (to_.kind != LinkKind::kLocal) return;
  // The socket name belongs to one process, which listens as long as it can take part.
  if (errno_value == ECONNREFUSED)
    state_ = State::kDeserted;
  else
    lost_ = true;
}

void OutboundConnection::close() {
  if (stream_) epoll_.remove(stream_->fd().get());
  stream_.reset();
  waiting_.clear();
  if (state_ != State::kDeserted) state_ = State::kClosed;
}

MembershipTransport::MembershipTransport(ProcessId self, const Epoll& epoll, uint64_t first_key,
                                         Delegate& owner, std::shared_ptr<const TlsKey> tls_key)
    : self_(self),
      epoll_(epoll),
      delegate_(owner),
      tls_key_(std::move(tls_key)),
      next_key_(first_key) {}

OutboundConnection& MembershipTransport::to(const PeerAddress& address_of) {
  auto& line = outgoing_[address_of.process];
  // The address changes when the two processes turn out to share a host.
  if (!line || !line->to().is_dialed_like(address_of)) {
    std::erase_if(keys_, [&](const auto& one) { return one.second == address_of.process; });
    keys_[next_key_] = address_of.process;
    line = std::make_unique<OutboundConnection>(self_, address_of, epoll_, next_key_++,
                                                tls_key_.get());
  }
  return *line;
}

bool MembershipTransport::send(const PeerAddress& address_of, uint64_t group_id, ConstBytes message,
                               bool certain, TimePoint now) {
  OutboundConnection& line = to(address_of);
  const bool certain_now = line.send(group_id, message, certain, now);
  update_state(line);
  return certain_now;
}

void MembershipTransport::watch(const PeerAddress& process, uint64_t group_id, TimePoint now) {
  OutboundConnection& line = to(process);
  line.look(group_id, now);
  update_state(line);
}

void MembershipTransport::update_state(OutboundConnection& line) {
  if (line.state() == OutboundConnection::State::kDeserted &&
      told_.insert(line.to().process).second)
    delegate_.on_deserted(line.to().process);
}

// The low limit of frames, for connections that have not been admitted, ends here.
bool MembershipTransport::adopt(FramedSocket stream, const MessageOrigin& from, TimePoint now) {
  make_room(from);
  const uint64_t key = next_key_++;
  stream.limit_frames(kMaxFrameBody);
  auto line = std::make_unique<InboundConnection>(std::move(stream), from, now);
  if (epoll_.add(line->stream.fd().get(), EPOLLIN, key)) return false;
  incoming_.emplace(key, std::move(line));
  // The control thread may have read part of the input already.
  on_event(key, now);
  return true;
}

// Closes the connections that have been silent for the longest time, and first those without a
// message that was sealed. Messages that have arrived are delivered.
void MembershipTransport::make_room(const MessageOrigin& from) {
  for (;;) {
    size_t of_process = 0;
    size_t of_kind = 0;
    size_t unproven = 0;
    for (const auto& [key, line] : incoming_) {
      of_kind += line->from.kind == from.kind;
      of_process += line->from == from;
      unproven += line->from.kind == from.kind && !line->proven;
    }
    const bool must_prove = tls_key_ && from.kind == LinkKind::kLocal;
    if (of_process < kMostFromOne && of_kind < kMostIncoming &&
        (!must_prove || unproven < kMostUnproven))
      return;
    InboundConnection* oldest = nullptr;
    uint64_t its_key = 0;
    for (const auto& [key, line] : incoming_) {
      if (line->from.kind != from.kind || (of_process >= kMostFromOne && line->from != from))
        continue;
      if (oldest &&
          std::pair(oldest->proven, oldest->heard_at) <= std::pair(line->proven, line->heard_at))
        continue;
      oldest = line.get();
      its_key = key;
    }
    (void)read(*oldest, kReadsPerEvent, oldest->heard_at);
    close(its_key);
  }
}

// The caller closes the connection after false.
bool MembershipTransport::read(InboundConnection& line, int most, TimePoint now) {
  line.heard_at = now;
  for (int reads = 0;; ++reads) {
    for (;;) {
      const auto frame = line.stream.next();
      if (!frame.ok()) return false;
      if (!frame.value()) break;
      if (frame.value()->type != FrameType::kMembership) return false;
      if (!pass_on(line, frame.value()->body)) return false;
    }
    if (reads >= most) return true;
    const auto input = line.stream.receive();
    if (input == FramedSocket::Input::kEmpty) return true;
    if (input == FramedSocket::Input::kEnd) return false;
  }
}

bool MembershipTransport::pass_on(InboundConnection& line, ConstBytes message) {
  const MessageOrigin& from = line.from;
  if (!tls_key_ || from.kind != LinkKind::kLocal) {
    delegate_.on_message(from, message);
    return true;
  }
  const auto opened =
      tls_key_->unseal(message, seal_name(from.process, self_), TlsKey::Expired::kRefused);
  const bool is_of_sender = opened && (!opened->signer || opened->signer->fits(from.process));
  line.proven |= is_of_sender;
  if (is_of_sender) {
    delegate_.on_message(from, opened->value);
  } else if (const TimePoint now = Clock::now(); now - refused_at_ >= kLogRefusals) {
    refused_at_ = now;
    log(LogLevel::kWarn, "membership: refused a connection from pid " + std::to_string(from.pid) +
                             ": " +
                             (opened ? "it has " + opened->signer->describe() +
                                           ", which is not that of the process it claims to be"
                                     : "it does not have the key, or a valid certificate"));
  }
  return is_of_sender;
}

void MembershipTransport::take_in(ProcessId from, TimePoint now) {
  std::vector<uint64_t> keys;
  for (const auto& [key, line] : incoming_)
    if (line->from.process == from && line->from.kind == LinkKind::kLocal) keys.push_back(key);
  for (const uint64_t key : keys) on_event(key, std::numeric_limits<int>::max(), now);
}

void MembershipTransport::on_event(uint64_t key, int most_reads, TimePoint now) {
  if (const auto line = incoming_.find(key); line != incoming_.end()) {
    if (!read(*line->second, most_reads, now)) return close(key);
    if (line->second->stream.has_input()) with_input_.push_back(key);
    return;
  }
  const auto process = keys_.find(key);
  if (process == keys_.end()) return;
  OutboundConnection& line = *outgoing_.at(process->second);
  line.on_event(now);
  update_state(line);
}

void MembershipTransport::close(uint64_t key) {
  const auto line = incoming_.find(key);
  epoll_.remove(line->second->stream.fd().get());
  incoming_.erase(line);
}

std::optional<TimePoint> MembershipTransport::next() const {
  if (!with_input_.empty()) return TimePoint();
  std::optional<TimePoint> out;
  for (const auto& [process, line] : outgoing_)
    if (const auto at = line->next()) out = std::min(out.value_or(*at), *at);
  return out;
}

void MembershipTransport::tick(TimePoint now) {
  for (const uint64_t key : std::exchange(with_input_, {})) on_event(key, now);
  // A process that vanished with its host does not close its connection. If a living one is closed,
  // it dials again.
  for (auto line = incoming_.begin(); line != incoming_.end();) {
    const auto next = std::next(line);
    if (now - line->second->heard_at > kForgottenAfter) close(line->first);
    line = next;
  }
  for (auto line = outgoing_.begin(); line != outgoing_.end();) {
    line->second->tick(now);
    update_state(*line->second);
    // A deserted connection is kept, so that its state stays.
    const bool idle = line->second->state() != OutboundConnection::State::kDeserted &&
                      now - line->second->used_at() > kIdleLine;
    if (idle) std::erase_if(keys_, [&](const auto& one) { return one.second == line->first; });
    line = idle ? outgoing_.erase(line) : std::next(line);
  }
}

}  // namespace ringdist
