#include "transport/tcp/tcp_send_channel.h"

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/serialize.h"

namespace ringdist::tcp {
namespace {

constexpr size_t kMostRecordsPerWrite = 4;            // then it is the turn of what has arrived
constexpr size_t kMostCopiedInAll = size_t{1} << 20;  // bytes; beyond, sends end when acknowledged
constexpr Duration kRetryWrite = Milliseconds(2);     // after a lack of memory
// With several connections, each has about this many bytes of records to write. Few, because they
// wait if its network is slower than others.
constexpr size_t kMostQueued = size_t{64} << 10;
// A connection breaks if the peer acknowledges nothing for this part of the peer timeout.
constexpr int kSilenceParts = 2;

}  // namespace

TcpSendChannel::TcpSendChannel(ContextId me, ContextId peer, DataAddress to,
                               const std::vector<std::string>& own_ips, Duration peer_timeout,
                               TransportDelegate& receiver, StagingPool& staging,
                               const Epoll& epoll, uint64_t key, const TlsKey* tls_key)
    : to_(std::move(to)),
      peer_timeout_(peer_timeout),
      longest_silence_(peer_timeout / kSilenceParts),
      receiver_(receiver),
      staging_(staging),
      epoll_(epoll),
      key_(key),
      tls_key_(tls_key),
      hello_{me, peer, 1, 0, to_.secret} {
  const std::vector<Path> paths = pair_interfaces(own_ips, to_.addresses);
  connections_.resize(paths.size());
  for (size_t i = 0; i < paths.size(); ++i) {
    connections_[i].path = paths[i];
    connections_[i].index = static_cast<int>(i);
  }
}

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
    unsendable_ = true;
    for (Connection& one : connections_) {
      close_socket(one);
      one.tick_at = TimePoint();
    }
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
  if (records_.empty()) silent_since_ = progressed_at_ = now;
  if (kept.record.payload.empty()) copied_ += kept.head.size();
  records_.push_back(std::move(kept));
  const bool idle = std::ranges::all_of(connections_, [](const Connection& one) {
    return one.state == State::kIdle && !one.tick_at;
  });
  if (idle) return dial(connections_[0], now);
  // While records wait for room in a socket, an event follows.
  if (next_ + 1 == records_.size()) distribute(now);
}

void TcpSendChannel::distribute(TimePoint now) {
  for (Connection& one : connections_) {
    if (next_ >= records_.size()) return;
    if (one.state == State::kOpen && one.is_written()) flush(one, now);
  }
}

// The first record is never held back, so that the peer can go on.
void TcpSendChannel::assign(Connection& to) {
  size_t bytes = 0;
  for (const uint64_t number : to.queue) bytes += kept(number).bytes();
  while (next_ < records_.size() && to.queue.size() < kMostRecordsPerWrite) {
    if (has_several() && (bytes >= kMostQueued || (next_ > 0 && on_the_way_ > kWindow))) return;
    Kept& taken = records_[next_];
    taken.path = to.index;
    bytes += taken.bytes();
    on_the_way_ += taken.cost();
    to.queue.push_back(first_ + next_);
    skip_assigned();
  }
}

void TcpSendChannel::flush(Connection& to, TimePoint now) {
  if (!to.socket.flush()) return connection_lost(to, "sending", errno, now);
  assign(to);
  if (to.queue.empty() && to.rest.empty()) return watch(to, to.socket.events());
  std::array<iovec, 1 + 2 * kMostRecordsPerWrite> parts;
  size_t count = 0;
  const auto add = [&](ConstBytes bytes, size_t& skip) {
    const size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (bytes.size() > skipped)
      parts[count++] = {const_cast<std::byte*>(bytes.data()) + skipped, bytes.size() - skipped};
  };
  size_t none = 0, skip = to.written;
  add(to.rest, none);
  for (const uint64_t number : to.queue) {
    add(kept(number).head, skip);
    add(kept(number).record.payload, skip);
  }
  const ssize_t sent = to.socket.write(std::span(parts).first(count));
  if (sent < 0 && errno != EAGAIN && errno != EWOULDBLOCK) {
    if (errno != EINTR && !passes(errno)) return connection_lost(to, "sending", errno, now);
    to.tick_at = now + kRetryWrite;
    return;
  }
  if (sent > 0) advance(to, static_cast<size_t>(sent));
  if (has_several() && !to.is_written()) dial_all(now);
  if (broken_) return;
  if (!to.tick_at) {
    to.moved_at = now;
    to.tick_at = now + (has_several() ? kStuckCheck : longest_silence_);
  }
  if (to.queue.empty()) assign(to);
  watch(to, to.is_written() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void TcpSendChannel::advance(Connection& to, size_t bytes) {
  const size_t of_rest = std::min(bytes, to.rest.size());
  to.rest.erase(to.rest.begin(), to.rest.begin() + static_cast<ptrdiff_t>(of_rest));
  to.written += bytes - of_rest;
  while (!to.queue.empty() && to.written >= kept(to.queue.front()).bytes()) {
    to.written -= kept(to.queue.front()).bytes();
    to.queue.pop_front();
  }
}

void TcpSendChannel::end(const OutgoingRecord& record, const Error& error) {
  if (record.staged != nullptr) staging_.release(record.staged);
  receiver_.end_send(record.send_id, error);
}

// ---- Acknowledgements

// A former channel may have brought the record. The answer to a greeting may be older than it.
bool TcpSendChannel::on_handled(const Handled& handled, TimePoint now) {
  const bool greets = !has_several() && connections_[0].state == State::kGreeting;
  if (greets || handled.channel != hello_.channel) return false;
  const bool any = acknowledged(handled.count, now);
  if (has_several()) distribute(now);  // more may be on the way now
  return any;
}

// Counts come by several ways, so a lower one may come late.
bool TcpSendChannel::acknowledged(uint64_t count, TimePoint now) {
  if (count < first_) return false;
  if (count > first_ + records_.size()) {
    break_channel(Error(ErrorKind::kProtocol, "the peer acknowledges messages that do not exist"));
    return false;
  }
  // A connection on which nothing gets through is no end of the failure.
  if (count > first_) {
    progressed_at_ = now;
    failing_since_.reset();
    for (Connection& one : connections_) one.pause = Duration(0);
  }
  bool any = false;
  silent_since_ = now;
  while (first_ < count) {
    const Kept done = std::move(records_.front());
    if (done.path >= 0) forget(done, connections_[static_cast<size_t>(done.path)]);
    records_.pop_front();
    ++first_;
    if (next_ > 0) --next_;
    skip_assigned();
    if (done.record.payload.empty()) copied_ -= done.head.size();
    any |= done.record.send_id != kNoSendId;
    end(done.record, {});  // may send, which changes records_
  }
  return any;
}

// A record that was repeated may be acknowledged while it is written again. Then its memory is no
// longer there, and the connection needs the rest of its bytes.
void TcpSendChannel::forget(const Kept& first, Connection& of) {
  on_the_way_ -= first.cost();
  if (of.written > 0 && of.queue.front() == first_) {
    size_t skip = of.written;
    for (const ConstBytes part : {ConstBytes(first.head), first.record.payload}) {
      const size_t skipped = std::min(skip, part.size());
      skip -= skipped;
      of.rest.insert(of.rest.end(), part.begin() + static_cast<ptrdiff_t>(skipped), part.end());
    }
    of.written = 0;
  }
  std::erase(of.queue, first_);
}

// ---- The end

void TcpSendChannel::break_channel(const Error& cause) {
  for (Connection& one : connections_) {
    close_socket(one);
    one.tick_at.reset();
  }
  if (!broken_) broken_ = cause;
  // Callbacks may send, which ends at once as the channel is broken.
  std::deque<Kept> open;
  open.swap(records_);
  first_ += open.size();
  next_ = copied_ = on_the_way_ = 0;
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
  refused_since_.reset();
  for (Connection& one : connections_) {
    close_socket(one);
    one.tick_at.reset();
    one.pause = Duration(0);
  }
}

}  // namespace ringdist::tcp
