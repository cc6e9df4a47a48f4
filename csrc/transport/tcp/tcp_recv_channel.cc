#include "transport/tcp/tcp_recv_channel.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

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
void TcpRecvChannel::connect(Fd socket, TimePoint now) {
  close();
  drop_input();
  socket_ = std::move(socket);
  if (epoll_.add(socket_.get(), EPOLLIN, key_)) return close();
  acknowledge(now);
}

// A read that does not fill the buffer has emptied the socket.
bool TcpRecvChannel::read(TransportDelegate& receiver, const OnHandled& on_handled, TimePoint now) {
  bool any = deliver(receiver, on_handled);
  size_t taken = 0;
  bool more = true;
  while (more && socket_ && !has_records_ && taken < kMostPerRead) {
    const size_t got = receive();
    taken += got;
    more = got > 0 && end_ == buffer_.size();
    any |= deliver(receiver, on_handled);
  }
  if (!socket_ && !has_records_) drop_input();
  if (!more && must_acknowledge()) acknowledge(now);
  if (socket_ && handled_ != acknowledged_ && !acknowledge_at_)
    acknowledge_at_ = now + kAcknowledgeAfter;
  return any;
}

bool TcpRecvChannel::must_acknowledge() const {
  return socket_ && handled_ != acknowledged_ &&
         (sender_waits_ || handled_ - acknowledged_ >= kMostUnacknowledged);
}

Handled TcpRecvChannel::mark_acknowledged() {
  acknowledged_ = handled_;
  sender_waits_ = false;
  acknowledge_at_.reset();
  return {number_, handled_};
}

size_t TcpRecvChannel::receive() {
  // A peer that sends no large record needs a small buffer only.
  if (buffer_.size() < largest_ + kReadAhead) buffer_.resize(largest_ + kReadAhead);
  if (begin_ > 0) {  // the begin of a record that continues
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= std::exchange(begin_, 0);
  }
  const ssize_t got =
      recv(socket_.get(), buffer_.data() + end_, buffer_.size() - end_, MSG_DONTWAIT);
  if (got > 0) {
    end_ += static_cast<size_t>(got);
    return static_cast<size_t>(got);
  }
  const bool stays = got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || passes(errno));
  if (!stays) close();  // the sender dials again if it has more
  return 0;
}

bool TcpRecvChannel::deliver(TransportDelegate& receiver, const OnHandled& on_handled) {
  bool any = false;
  has_records_ = false;
  while (end_ - begin_ >= sizeof(RecordHead)) {
    RecordHead head;
    std::memcpy(&head, buffer_.data() + begin_, sizeof head);
    if (!head.is_valid(handled_, max_payload_)) {
      log(LogLevel::kWarn, "transport tcp: a peer sends what is no message");
      close();
      drop_input();
      return any;
    }
    largest_ = std::max(largest_, head.bytes());
    if (end_ - begin_ < head.bytes()) break;
    has_records_ = !receiver.takes_more();
    if (has_records_) break;
    const ConstBytes record = ConstBytes(buffer_).subspan(begin_, head.bytes());
    begin_ += head.bytes();
    ++handled_;
    sender_waits_ |= head.kind == RecordKind::kFlush || head.payload_bytes > kMostCopiedBytes;
    any = true;
    if (head.of_channel != 0) on_handled({head.of_channel, head.handled});
    if (head.kind == RecordKind::kMessage)
      receiver.on_message(from_, record.subspan(sizeof head, head.header_bytes),
                          record.subspan(sizeof head + head.header_bytes));
  }
  return any;
}

// An acknowledgement is so small that the kernel takes all of it or nothing.
void TcpRecvChannel::acknowledge(TimePoint now) {
  const ssize_t sent =
      ::send(socket_.get(), &handled_, sizeof handled_, MSG_NOSIGNAL | MSG_DONTWAIT);
  acknowledge_at_.reset();
  if (sent == sizeof handled_) {
    acknowledged_ = handled_;
    sender_waits_ = false;
  } else if (sent < 0 && passes(errno)) {
    acknowledge_at_ = now + kAcknowledgeAfter;
  } else {
    close();
  }
}

void TcpRecvChannel::tick(TimePoint now) {
  if (acknowledge_at_ && now >= *acknowledge_at_ && socket_) acknowledge(now);
}

// The last acknowledgement is tried, so that the sender of a process that leaves need not dial
// again.
void TcpRecvChannel::close() {
  if (!socket_ || mark_.forked()) return;  // in a child the number may be another file's
  if (handled_ != acknowledged_)
    (void)::send(socket_.get(), &handled_, sizeof handled_, MSG_NOSIGNAL | MSG_DONTWAIT);
  epoll_.remove(socket_.get());
  socket_.reset();
  acknowledge_at_.reset();
}

void TcpRecvChannel::drop_input() {
  buffer_ = {};
  begin_ = end_ = 0;
  has_records_ = false;
}

}  // namespace ringdist::tcp
