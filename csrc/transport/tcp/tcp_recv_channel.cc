#include "transport/tcp/tcp_recv_channel.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/log.h"
#include "os/socket.h"

namespace ringdist::tcp {
namespace {

constexpr size_t kReadAhead = size_t{64} << 10;  // bytes that are read beyond a record
constexpr size_t kMostPerRead = size_t{256}
                                << 10;         // bytes; then it is the turn of what is to be sent
constexpr uint64_t kMostUnacknowledged = 256;  // records
constexpr Duration kAcknowledgeAfter = Milliseconds(10);

}  // namespace

// Bytes of the former connection that lie here were not acknowledged, so the sender repeats them.
void TcpRecvChannel::connect(size_t path, Stream socket, TimePoint now) {
  Connection& to = connections_[path];
  close(to);
  to.drop_input();
  to.socket = std::move(socket);
  if (epoll_.add(to.socket.fd().get(), EPOLLIN, key_ + path)) return to.socket.close();
  acknowledge(now);
}

// A read that does not fill the buffer has emptied the socket.
bool TcpRecvChannel::read(size_t path, TransportDelegate& receiver, const OnHandled& on_handled,
                          TimePoint now) {
  Connection& from = connections_[path];
  bool any = deliver(from, receiver, on_handled);
  size_t taken = 0;
  bool more = true;
  while (more && from.socket && !from.has_records && taken < kMostPerRead) {
    const size_t got = receive(from);
    taken += got;
    more = got > 0 && from.end == from.buffer.size();
    any |= deliver(from, receiver, on_handled);
  }
  if (!from.socket && !from.has_records) from.drop_input();
  if (!more && must_acknowledge()) acknowledge(now);
  if (is_connected() && handled_ != acknowledged_ && !acknowledge_at_)
    acknowledge_at_ = now + kAcknowledgeAfter;
  return any;
}

bool TcpRecvChannel::must_acknowledge() const {
  return handled_ != acknowledged_ &&
         (sender_waits_ || handled_ - acknowledged_ >= kMostUnacknowledged) && is_connected();
}

Handled TcpRecvChannel::mark_acknowledged() {
  acknowledged_ = handled_;
  sender_waits_ = false;
  acknowledge_at_.reset();
  return {number_, handled_};
}

size_t TcpRecvChannel::receive(Connection& from) {
  std::vector<std::byte>& buffer = from.buffer;
  // A peer that sends no large record needs a small buffer only.
  if (buffer.size() < largest_ + kReadAhead) buffer.resize(largest_ + kReadAhead);
  if (from.begin > 0) {  // the begin of a record that continues
    std::memmove(buffer.data(), buffer.data() + from.begin, from.unread());
    from.end -= std::exchange(from.begin, 0);
  }
  const ssize_t got = from.socket.read(Bytes(buffer).subspan(from.end));
  if (got > 0) {
    from.end += static_cast<size_t>(got);
    return static_cast<size_t>(got);
  }
  const bool stays = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || passes(errno));
  if (!stays) close(from);  // the sender dials again if it has more
  return 0;
}

bool TcpRecvChannel::deliver(Connection& from, TransportDelegate& receiver,
                             const OnHandled& on_handled) {
  const uint64_t before = handled_;
  from.has_records = !deliver_early(receiver, on_handled);
  while (!from.has_records && from.unread() >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, from.buffer.data() + from.begin, sizeof head);
    bool valid = head.is_valid(max_payload_);
    if (valid && from.unread() < head.bytes()) {
      largest_ = std::max(largest_, head.bytes());
      break;
    }
    const bool next = head.number == handled_;
    from.has_records = valid && next && !receiver.takes_more();
    if (from.has_records) break;
    if (valid) {
      const ConstBytes record = ConstBytes(from.buffer).subspan(from.begin, head.bytes());
      from.begin += head.bytes();
      if (next) {
        deliver_one(record, receiver, on_handled);
        from.has_records = !deliver_early(receiver, on_handled);
      } else {
        valid = keep_early(head.number, record);
      }
    }
    if (!valid) {
      log(LogLevel::kWarn, "transport tcp: a peer sends what is no message");
      close(from);
      from.drop_input();
    }
  }
  return handled_ != before;
}

bool TcpRecvChannel::deliver_early(TransportDelegate& receiver, const OnHandled& on_handled) {
  while (!early_.empty() && early_.begin()->first == handled_) {
    if (!receiver.takes_more()) return false;
    const auto record = early_.extract(early_.begin());
    early_bytes_ -= record.mapped().size() + kRecordCost;
    deliver_one(record.mapped(), receiver, on_handled);
  }
  return true;
}

void TcpRecvChannel::deliver_one(ConstBytes record, TransportDelegate& receiver,
                                 const OnHandled& on_handled) {
  RecordHead head;
  std::memcpy(&head, record.data(), sizeof head);
  ++handled_;
  sender_waits_ |= head.kind == RecordKind::kFlush || head.payload_bytes > kMostCopiedBytes;
  if (head.of_channel != 0) on_handled({head.of_channel, head.handled});
  if (head.kind == RecordKind::kMessage)
    receiver.on_message(from_, record.subspan(sizeof head, head.header_bytes),
                        record.subspan(sizeof head + head.header_bytes));
}

// The sender repeats a record if it has not read the acknowledgement.
bool TcpRecvChannel::keep_early(uint64_t number, ConstBytes record) {
  if (number < handled_) {
    acknowledged_ = std::min(acknowledged_, number);
    sender_waits_ = true;
    return true;
  }
  if (early_.contains(number)) return true;
  if (early_bytes_ > kWindow) return false;
  early_.emplace(number, std::vector<std::byte>(record.begin(), record.end()));
  early_bytes_ += record.size() + kRecordCost;
  return true;
}

// An acknowledgement is so small that the kernel takes all of it or nothing. It goes to all
// connections, because one of them may be cut.
void TcpRecvChannel::acknowledge(TimePoint now) {
  acknowledge_at_.reset();
  for (Connection& to : connections_) {
    if (!to.socket) continue;
    const ssize_t sent = to.socket.write(std::as_bytes(std::span(&handled_, 1)));
    if (sent == sizeof handled_) {
      acknowledged_ = handled_;
      sender_waits_ = false;
      // Encrypted bytes that the socket did not take are sent by the next tick().
      if (to.socket.has_output()) acknowledge_at_ = now + kAcknowledgeAfter;
    } else if (sent < 0 && passes(errno)) {
      acknowledge_at_ = now + kAcknowledgeAfter;
    } else {
      close(to);
    }
  }
}

void TcpRecvChannel::tick(TimePoint now) {
  if (acknowledge_at_ && now >= *acknowledge_at_) acknowledge(now);
}

void TcpRecvChannel::close() {
  for (Connection& one : connections_) close(one);
  acknowledge_at_.reset();
}

// The last acknowledgement is tried, so that the sender of a process that leaves need not dial
// again.
void TcpRecvChannel::close(Connection& one) {
  if (!one.socket || mark_.forked()) return;  // in a child the number may be another file's
  if (handled_ != acknowledged_) (void)one.socket.write(std::as_bytes(std::span(&handled_, 1)));
  epoll_.remove(one.socket.fd().get());
  one.socket.close();
}

void TcpRecvChannel::Connection::drop_input() {
  buffer = {};
  begin = end = 0;
  has_records = false;
}

}  // namespace ringdist::tcp
