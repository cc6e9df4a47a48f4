#include "transport/tcp/tcp_send_channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/serialize.h"

namespace ringdist::tcp {
namespace {

constexpr size_t kMaxAddresses = 64;
constexpr size_t kMostRecordsPerWrite = 4;            // then it is the turn of what has arrived
constexpr size_t kMostCopiedInAll = size_t{1} << 20;  // bytes; beyond, sends end when acknowledged
constexpr Duration kFirstPause = Milliseconds(5);     // before the second dial
constexpr Duration kLongestPause = Milliseconds(500);
constexpr Duration kGreetingTime = std::chrono::seconds(2);  // from a dial to its answer
constexpr Duration kRetryWrite = Milliseconds(2);            // after a lack of memory
// If a port refuses connections for this time, the peer has closed it.
constexpr Duration kRefusedTime = Milliseconds(200);
// A connection breaks if sent data is not confirmed for this part of the peer timeout.
constexpr int kUserTimeoutParts = 4;

bool would_block(int errno_value) { return errno_value == EAGAIN || errno_value == EWOULDBLOCK; }

}  // namespace

std::vector<std::byte> DataAddress::encode() const {
  Writer out;
  out.put(secret).put(static_cast<uint32_t>(addresses.size()));
  for (const std::string& address : addresses) out.put_string(address);
  return out.take();
}

std::optional<DataAddress> DataAddress::decode(ConstBytes bytes) {
  Reader in(bytes);
  DataAddress out;
  out.secret = in.get<DataSecret>();
  const auto count = in.get<uint32_t>();
  if (count == 0 || count > kMaxAddresses) return std::nullopt;
  for (uint32_t i = 0; i < count && in.ok(); ++i) out.addresses.push_back(in.get_string());
  if (!in.ended()) return std::nullopt;
  return out;
}

TcpSendChannel::TcpSendChannel(ContextId me, ContextId peer, DataAddress to, std::string own_ip,
                               Duration peer_timeout, TransportDelegate& receiver,
                               StagingPool& staging, const Epoll& epoll, uint64_t key)
    : to_(std::move(to)),
      own_ip_(std::move(own_ip)),
      peer_timeout_(peer_timeout),
      receiver_(receiver),
      staging_(staging),
      epoll_(epoll),
      key_(key),
      hello_{me, peer, 1, to_.secret} {}

bool TcpSendChannel::may_come_from(const std::string& ip) const {
  return std::ranges::any_of(
      to_.addresses, [&ip](const std::string& address) { return may_have_ip(address, ip); });
}

// ---- Sending

void TcpSendChannel::send(ConstBytes header, const OutgoingRecord& record, const Handled& handled,
                          TimePoint now) {
  if (broken_) return end(record, broken_);
  const ConstBytes payload = record.payload;
  RecordHead head;
  head.number = first_ + records_.size();
  head.handled = handled.count;
  head.of_channel = handled.channel;
  head.payload_bytes = static_cast<uint32_t>(payload.size());
  head.header_bytes = static_cast<uint16_t>(header.size());
  const bool copies =
      payload.size() <= kMostCopiedBytes && copied_ + payload.size() <= kMostCopiedInAll;
  Kept kept;
  kept.head.resize(sizeof head + header.size() + (copies ? payload.size() : 0));
  std::memcpy(kept.head.data(), &head, sizeof head);
  std::ranges::copy(header, kept.head.begin() + sizeof head);
  if (!copies) {
    kept.record = record;
    return push(std::move(kept), now);
  }
  std::ranges::copy(payload,
                    kept.head.begin() + static_cast<ptrdiff_t>(sizeof head + header.size()));
  push(std::move(kept), now);
  end(record, {});
}

// The bytes stay the same, so that the record can be sent again after a new connection. Callbacks
// must not run in here.
void TcpSendChannel::keep_copy(SendId send_id) noexcept {
  const auto kept = std::ranges::find_if(
      records_, [send_id](const Kept& one) { return one.record.send_id == send_id; });
  if (kept == records_.end()) return;
  ConstBytes& payload = kept->record.payload;
  try {
    kept->head.insert(kept->head.end(), payload.begin(), payload.end());
  } catch (const std::bad_alloc&) {
    close_socket();
    unsendable_ = true;
    tick_at_ = TimePoint();
  }
  payload = {};
  copied_ += kept->head.size();
}

void TcpSendChannel::begin_flush(TimePoint now) {
  if (flushed()) return;
  RecordHead head;
  head.number = first_ + records_.size();
  head.kind = RecordKind::kFlush;
  Kept kept;
  kept.head.resize(sizeof head);
  std::memcpy(kept.head.data(), &head, sizeof head);
  silent_since_ = now;
  push(std::move(kept), now);
}

void TcpSendChannel::push(Kept kept, TimePoint now) {
  if (records_.empty()) silent_since_ = now;
  if (kept.record.payload.empty()) copied_ += kept.head.size();
  records_.push_back(std::move(kept));
  if (state_ == State::kIdle && !tick_at_) return dial(now);
  // While records wait for room in the socket, an event follows.
  if (state_ == State::kOpen && next_ + 1 == records_.size()) flush(now);
}

void TcpSendChannel::flush(TimePoint now) {
  while (next_ < records_.size()) {
    std::array<iovec, 2 * kMostRecordsPerWrite> parts;
    size_t count = 0;
    const auto add = [&](ConstBytes bytes, size_t& skip) {
      const size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      if (bytes.size() > skipped)
        parts[count++] = {const_cast<std::byte*>(bytes.data()) + skipped, bytes.size() - skipped};
    };
    size_t skip = written_;
    const size_t last = std::min(records_.size(), next_ + kMostRecordsPerWrite);
    for (size_t i = next_; i < last; ++i) {
      add(records_[i].head, skip);
      add(records_[i].record.payload, skip);
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = sendmsg(socket_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && would_block(errno)) return watch(EPOLLIN | EPOLLOUT);
    if (sent < 0 && passes(errno)) {
      tick_at_ = now + kRetryWrite;
      return;
    }
    if (sent < 0) return connection_lost("sending", errno, now);
    written_ += static_cast<size_t>(sent);
    while (next_ < records_.size() && written_ >= records_[next_].bytes())
      written_ -= records_[next_++].bytes();
    if (next_ < records_.size()) return watch(EPOLLIN | EPOLLOUT);
  }
  watch(EPOLLIN);
}

void TcpSendChannel::end(const OutgoingRecord& record, const Error& error) {
  if (record.staged != nullptr) staging_.release(record.staged);
  receiver_.end_send(record.send_id, error);
}

// ---- The connection

void TcpSendChannel::dial(TimePoint now) {
  tick_at_ = now + kGreetingTime;
  state_ = State::kConnecting;
  const std::string& address = to_.addresses[address_];
  ConnectAttempt attempt = connect_tcp(address, own_ip_);
  socket_ = std::move(attempt.fd);
  if (attempt.failure)
    return connection_lost("connecting to " + address, attempt.failure->errno_value, now);
  const auto timeout = std::chrono::duration_cast<Milliseconds>(peer_timeout_).count();
  break_after(socket_, timeout / kUserTimeoutParts);
  if (!attempt.pending) return connected(now);
  watch(EPOLLOUT);
}

void TcpSendChannel::connected(TimePoint now) {
  if (const int problem = connect_result(socket_))
    return connection_lost("connecting to " + to_.addresses[address_], problem, now);
  state_ = State::kGreeting;
  const std::vector<std::byte> hello = hello_.frame();
  const ssize_t sent =
      ::send(socket_.get(), hello.data(), hello.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A new socket has room for a hello.
  if (sent != static_cast<ssize_t>(hello.size()))
    return connection_lost("sending a hello", sent < 0 ? errno : EMSGSIZE, now);
  watch(EPOLLIN);
}

bool TcpSendChannel::on_event(TimePoint now) {
  if (state_ == State::kConnecting) {
    connected(now);
    return false;
  }
  if (state_ == State::kIdle) return false;
  const bool any = receive(now);
  if (state_ == State::kOpen && next_ < records_.size()) flush(now);
  return any;
}

bool TcpSendChannel::receive(TimePoint now) {
  std::array<std::byte, 512> bytes;
  const ssize_t got = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (got < 0 && (errno == EINTR || passes(errno) || would_block(errno))) return false;
  if (got <= 0) {
    connection_lost(got == 0 ? "the peer closed the connection" : "receiving", got == 0 ? 0 : errno,
                    now);
    return false;
  }
  input_.insert(input_.end(), bytes.begin(), bytes.begin() + got);
  const size_t whole = input_.size() / sizeof(uint64_t);
  if (whole == 0) return false;
  // The counts grow, so only the last one matters.
  uint64_t count = 0;
  std::memcpy(&count, input_.data() + (whole - 1) * sizeof count, sizeof count);
  input_.erase(input_.begin(), input_.begin() + static_cast<ptrdiff_t>(whole * sizeof count));
  return acknowledged(count, now);
}

// A former channel may have brought the record. In a greeting the answer to it has the count.
bool TcpSendChannel::on_handled(const Handled& handled, TimePoint now) {
  if (state_ == State::kGreeting || handled.channel != hello_.channel) return false;
  return acknowledged(handled.count, now);
}

// Counts come by two ways, so a lower one may come late.
bool TcpSendChannel::acknowledged(uint64_t count, TimePoint now) {
  const bool greeting = state_ == State::kGreeting;
  if (count < first_ && !greeting) return false;
  // Records that were written on a former connection may have arrived.
  const uint64_t most = first_ + (greeting ? records_.size() : next_);
  if (count < first_ || count > most) {
    break_channel(Error(ErrorKind::kProtocol, "the peer acknowledges messages that do not exist"));
    return false;
  }
  if (greeting) {
    state_ = State::kOpen;
    next_ = 0;
    written_ = 0;
    tick_at_.reset();
  }
  // A connection on which nothing gets through is no end of the failure.
  if (count > first_) {
    failing_since_.reset();
    pause_ = Duration(0);
  }
  bool any = false;
  silent_since_ = now;
  while (first_ < count) {
    const Kept kept = std::move(records_.front());
    records_.pop_front();
    ++first_;
    if (next_ > 0) --next_;
    if (kept.record.payload.empty()) copied_ -= kept.head.size();
    any |= kept.record.send_id != kNoSendId;
    end(kept.record, {});  // may send, which changes records_
  }
  return any;
}

void TcpSendChannel::connection_lost(const std::string& what, int errno_value, TimePoint now) {
  close_socket();
  tick_at_.reset();
  if (records_.empty()) return;  // the next send dials
  if (!failing_since_) failing_since_ = now;
  if (errno_value != ECONNREFUSED)
    refused_since_.reset();
  else if (!refused_since_)
    refused_since_ = now;
  if (now - *failing_since_ >= peer_timeout_ ||
      (refused_since_ && now - *refused_since_ >= kRefusedTime)) {
    const std::string why = errno_value ? std::string(": ") + std::strerror(errno_value) : "";
    return break_channel(Error(ErrorKind::kPeerLost, "the connection broke: " + what + why));
  }
  address_ = (address_ + 1) % to_.addresses.size();
  tick_at_ = now + pause_;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
}

void TcpSendChannel::tick(TimePoint now) {
  if (!tick_at_ || now < *tick_at_) return;
  tick_at_.reset();
  if (unsendable_)
    return break_channel(Error(ErrorKind::kSystem, "no memory to keep a message that was sent"));
  if (state_ == State::kIdle) return dial(now);
  if (state_ == State::kOpen) return flush(now);
  connection_lost("no answer from " + to_.addresses[address_], ETIMEDOUT, now);
}

std::optional<TimePoint> TcpSendChannel::due() const { return tick_at_; }

void TcpSendChannel::watch(uint32_t events) {
  if (watched_ == events) return;
  const Error error = watched_ == 0 ? epoll_.add(socket_.get(), events, key_)
                                    : epoll_.modify(socket_.get(), events, key_);
  if (error) return break_channel(error);
  watched_ = events;
}

void TcpSendChannel::close_socket() {
  // In a forked child the numbers may be those of other files.
  if (std::exchange(watched_, 0) != 0 && !mark_.forked()) epoll_.remove(socket_.get());
  socket_.reset();
  input_.clear();
  state_ = State::kIdle;
}

// ---- The end

void TcpSendChannel::break_channel(const Error& cause) {
  close_socket();
  tick_at_.reset();
  if (!broken_) broken_ = cause;
  // Callbacks may send, which ends at once as the channel is broken.
  std::deque<Kept> open;
  open.swap(records_);
  first_ += open.size();
  next_ = written_ = copied_ = 0;
  for (const Kept& kept : open) end(kept.record, broken_);
}

void TcpSendChannel::close_with(const Error& error) {
  if (!broken_) break_channel(error);
}

// The higher number makes the receiver replace its channel, which begins at record 0.
void TcpSendChannel::renew() {
  check(records_.empty(), "a channel is renewed while it has sends");
  broken_ = {};
  unsendable_ = false;
  ++hello_.channel;
  first_ = 0;
  failing_since_.reset();
  pause_ = Duration(0);
}

}  // namespace ringdist::tcp
