#include "transport/shm/recv_channel.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "os/random.h"
#include "os/socket.h"

namespace ringdist::shm {
namespace {

// The chunks are mapped in steps of this size, to call the kernel rarely.
constexpr size_t kMappedStep = size_t{1} << 20;
// Limits for the greeting: of the wait for a hello, and of that for its sender's address and of
// attempts to answer it.
constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr auto kAnswerLimit = std::chrono::seconds(30);
constexpr auto kAnswerAgain = std::chrono::milliseconds(5);

constexpr int kMostMessages = 8;  // per channel before others get their turn
constexpr int kMostAccepts = 16;  // per event, because any process can dial
constexpr auto kAcceptAgain = std::chrono::milliseconds(20);

}  // namespace

void RecvChannel::on_event() {
  if (ended() || !is_proven()) return;
  if (doorbell_) return receive_exports();
  // A peer sends nothing before it is answered, so this is the end of its connection.
  if (hello_) return end(PeerDoorbells::closed());
  auto greeted = receive_hello(socket_, me_, /*reads=*/true);
  if (!greeted.ok()) {
    if (greeted.error().kind() == ErrorKind::kSystem) refuse_hello(socket_, me_);
    return end(greeted.error());
  }
  const ContextId proven = proof_.peer();
  if (greeted.value() && proven != 0 && proven != greeted.value()->hello.from)
    return end(Error(
        ErrorKind::kProtocol,
        "pid " + std::to_string(pid_) + " names another process, and has " + proof_.peer_name()));
  hello_ = std::move(greeted.value());
  check_hello();
}

bool RecvChannel::is_proven() {
  const auto over = proof_.advance(socket_);
  if (!over.ok()) end(over.error());
  return over.ok() && over.value();
}

void RecvChannel::check_hello() {
  if (!is_waiting()) return;
  const auto is_sender = check_sender_(hello_->hello.from, pid_);
  if (!is_sender) return;
  if (!*is_sender)
    return end(Error(ErrorKind::kProtocol,
                     "pid " + std::to_string(pid_) + " speaks in the name of another process"));
  ReceivedHello greeted = *std::exchange(hello_, {});
  if (greeted.for_exports) {
    for_exports_ = greeted.hello;
    return;
  }
  auto doorbell = bells_.add(greeted.hello.from, std::move(greeted.write_end));
  if (!doorbell.ok()) return end(doorbell.error());
  counter_ = own_.take_counter();
  if (!counter_)
    return end(Error(ErrorKind::kSystem, "too many processes of this host send to it"));
  memory_ = std::move(greeted.segment);
  chunks_ = std::move(greeted.chunks);
  doorbell_ = std::move(doorbell.value());
  peer_ = greeted.hello.from;
  ring_index_ = greeted.hello.index;
  ring_ = &reinterpret_cast<const ShmSegment*>(memory_.data())->rings[ring_index_];
  answer();
}

void RecvChannel::answer() {
  const TimePoint now = Clock::now();
  bool later = false;
  const Error error =
      send_hello(socket_, me_, *peer_, *counter_, own_.file(), own_.doorbell().write_end(), &later);
  answer_again_.reset();
  if (error && later && now - since_ < kAnswerLimit)
    answer_again_ = now + kAnswerAgain;
  else if (error)
    end(error);
}

bool RecvChannel::is_of(ContextId peer, uint32_t ring) const {
  return !ended() && peer_ == peer && ring_index_ == ring;
}

void RecvChannel::begin_exports(Fd socket) {
  imports_.begin(published());
  socket_ = std::move(socket);
  has_exports_ = true;
}

// The end of the export connection does not end the channel, because messages may still name blocks
// that came over it.
void RecvChannel::receive_exports() {
  const Error error = has_exports_ ? imports_.on_event(socket_) : Error();
  if (!error) return;
  has_exports_ = false;
  if (error.kind() != ErrorKind::kPeerLost) end(error);
}

// After the end the count stays at last_, so later messages of the peer are ignored.
uint64_t RecvChannel::published() const {
  return ended() ? last_ : slots_.published(ring_->published.value);
}

bool RecvChannel::deliver(TransportDelegate& receiver, int most) {
  bool any = false;
  for (; most > 0 && has_messages() && receiver.takes_more(); --most) {
    consume_one(receiver);
    any = true;
  }
  return any;
}

void RecvChannel::consume_one(TransportDelegate& receiver) {
  // The slot is another process's memory, so each field is read once and checked.
  const Slot& slot = ring_->slots[slots_.slot()];
  const uint32_t header = slot.header.load(std::memory_order_relaxed);
  if ((header & kExportAnnounced) != 0) on_event();
  const size_t header_size = header & kHeaderSizeMask;
  const size_t size = *static_cast<const volatile uint32_t*>(&slot.payload_size);
  const auto bytes = header_size <= kMaxHeaderBytes ? payload(slot, header, size) : std::nullopt;
  if (slots_.is_absurd(published()) || !bytes) {
    end(Error(ErrorKind::kProtocol, "a message that is not in the peer's memory"));
    last_ = slots_.consumed();
    return;
  }
  // The message is delivered before it counts as consumed, because its sender may then overwrite
  // slot and payload.
  receiver.on_message(*peer_, {slot.bytes.data(), header_size}, {*bytes, slot.header, kRevoked});
  const auto& writer = reinterpret_cast<const ShmSegment*>(memory_.data())->front;
  if (slots_.consume(own_.front().consumed[*counter_].value, writer.sleep)) doorbell_->ring();
  imports_.read_until(slots_.consumed());
}

std::optional<ConstBytes> RecvChannel::payload(const Slot& slot, uint32_t header, size_t bytes) {
  const uint64_t at = *static_cast<const volatile uint64_t*>(&slot.payload_at);
  if ((header & kExported) != 0) return imports_.find(at, bytes);
  const size_t header_size = header & kHeaderSizeMask;
  if (at == 0) {
    if (!is_short(header_size, bytes)) return std::nullopt;
    return ConstBytes{slot.bytes.data() + short_payload_at(header_size), bytes};
  }
  if (at < kChunksAt || at > kSegmentBytes || bytes > kSegmentBytes - at) return std::nullopt;
  const size_t from = at - kChunksAt;
  if (from + bytes > chunks_.size())
    if (Error error = chunks_.grow(
            std::min(round_up(from + bytes, kMappedStep), kSegmentBytes - kChunksAt))) {
      end(error);
      return std::nullopt;
    }
  return ConstBytes{chunks_.data() + from, bytes};
}

void RecvChannel::end(const Error& cause) {
  if (ended()) return;
  last_ = ring_ ? published() : 0;
  error_ = cause;
  hello_.reset();
}

void RecvChannel::check_end() {
  if (ring_ && !ended() && slots_.writer_has_ended(ring_->published.value))
    end(PeerDoorbells::closed());
}

void RecvChannel::release() {
  released_ = true;
  ring_ = nullptr;
  memory_.reset();
  chunks_.reset();
  imports_.clear();
  if (!counter_) return;
  slots_.end(own_.front().consumed[*counter_].value);
  if (doorbell_) doorbell_->ring();
}

bool RecvChannel::is_outsider(TimePoint now) const {
  return !peer_ && now - since_ > (hello_ ? kAnswerLimit : kHelloTime);
}

RecvChannel::~RecvChannel() {
  if (counter_) own_.give_back_counter(*counter_);
}

Error RecvChannelTable::listen(uint64_t first_key) {
  listener_key_ = first_key;
  next_key_ = first_key + 1;
  address_ = "@ringdist-shm-" + std::to_string(getpid()) + "-" + std::to_string(random_id());
  auto listener = listen_unix(address_);
  if (!listener.ok()) return listener.error();
  listener_ = std::move(listener.value());
  return epoll_.add(listener_.get(), EPOLLIN, listener_key_);
}

bool RecvChannelTable::on_event(uint64_t key) {
  if (key == listener_key_) {
    accept_all();
    return true;
  }
  auto it = links_.find(key);
  if (it == links_.end()) return false;
  handle(it, &RecvChannel::on_event);
  return true;
}

void RecvChannelTable::check_waiting() {
  for (auto it = links_.begin(); it != links_.end();) {
    const auto link = it++;  // handle() may erase it
    if (link->second->is_waiting()) handle(link, &RecvChannel::check_hello);
  }
}

void RecvChannelTable::handle(Links::iterator it, void (RecvChannel::*act)()) {
  const bool was_known = it->second->peer().has_value();
  (it->second.get()->*act)();
  if (const auto peer = it->second->peer(); peer && !was_known)
    for (const auto& [other, link] : links_)
      if (other != it->first && link->peer() == peer) link->replace();
  if (it->second->for_exports())
    hand_over(it);
  else
    close_unneeded_socket(*it->second);
}

// Moves the socket to another channel, which gets its events from here on.
void RecvChannelTable::hand_over(Links::iterator caller) {
  RecvChannel& from = *caller->second;
  const ShmHello hello = *from.for_exports();
  const auto found = std::find_if(links_.begin(), links_.end(), [&](const auto& entry) {
    return entry.second->is_of(hello.from, hello.index);
  });
  if (found == links_.end())
    return from.end(Error(ErrorKind::kProtocol, "it exports memory for an unknown link"));
  auto& [key, link] = *found;
  link->on_event();  // the former connection has ended before this one began
  close_unneeded_socket(*link);
  if (link->ended() || link->socket())
    return from.end(Error(ErrorKind::kProtocol, "it exports memory for a link of another process"));
  if (Error error = epoll_.modify(from.socket().get(), EPOLLIN, key)) return from.end(error);
  link->begin_exports(from.take_socket());
  links_.erase(caller);
  link->on_event();
  close_unneeded_socket(*link);
}

void RecvChannelTable::close_unneeded_socket(RecvChannel& link) const {
  if (!link.needs_socket()) close_socket(link);
}

// The socket is removed from the epoll set explicitly. If another process holds a copy of it, its
// events would go on after the close.
void RecvChannelTable::close_socket(RecvChannel& link) const {
  if (link.socket()) epoll_.remove(link.socket().get());
  link.close_socket();
}

void RecvChannelTable::accept_all() {
  for (int n = 0; n < kMostAccepts; ++n) {
    Fd fd = accept_connection(listener_);
    if (!fd) {
      if (!exhausted(errno)) return;
      if (!warned_)
        log(LogLevel::kWarn, system_error("shared memory: peers wait", errno).message());
      warned_ = true;
      epoll_.remove(listener_.get());  // otherwise it would wake this thread again and again
      accept_again_ = Clock::now() + kAcceptAgain;
      return;
    }
    const auto who = peer_credentials(fd);
    if (!who.ok() || who.value().uid != geteuid()) continue;  // closes the connection
    const uint64_t key = next_key_++;
    if (epoll_.add(fd.get(), EPOLLIN, key)) continue;
    links_[key] =
        std::make_unique<RecvChannel>(own_, bells_, me_, std::move(fd), who.value().pid,
                                      check_sender_, KeyProof::accept(tls_key_.get(), me_));
  }
}

bool RecvChannelTable::deliver(TransportDelegate& receiver) {
  bool any = false;
  for (const auto& [key, link] : links_) any |= link->deliver(receiver, kMostMessages);
  return any;
}

bool RecvChannelTable::has_messages() const {
  return std::any_of(links_.begin(), links_.end(),
                     [](const auto& entry) { return entry.second->has_messages(); });
}

bool RecvChannelTable::has_messages_of(ContextId peer) const {
  return std::any_of(links_.begin(), links_.end(), [peer](const auto& entry) {
    return entry.second->peer() == peer && entry.second->has_messages();
  });
}

bool RecvChannelTable::has_finished() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) {
    return entry.second->finished() && !entry.second->was_released();
  });
}

bool RecvChannelTable::reap(TimePoint now,
                            const std::function<void(ContextId, const Error&)>& lost) {
  if (accept_again_ && now >= *accept_again_) {
    accept_again_.reset();
    if (epoll_.add(listener_.get(), EPOLLIN, listener_key_)) accept_again_ = now + kAcceptAgain;
  }
  bool any = false;
  for (auto it = links_.begin(); it != links_.end();) {
    RecvChannel& link = *it->second;
    if (link.is_outsider(now))
      link.end(Error(ErrorKind::kProtocol, "it sent no hello of a known process"));
    if (const auto due = link.due(); due && now >= *due) link.answer();
    link.check_end();
    close_unneeded_socket(link);
    if (link.finished() && !link.was_released()) {
      link.release();
      if (link.peer())
        lost(*link.peer(), link.error());
      else if (link.error().kind() != ErrorKind::kPeerLost)  // such a peer may dial again
        log(LogLevel::kWarn, "shared memory: a connection was refused: " + link.error().message());
      any = true;
    }
    it = link.over() ? links_.erase(it) : std::next(it);
  }
  return any;
}

std::optional<TimePoint> RecvChannelTable::due() const {
  std::optional<TimePoint> first = accept_again_;
  for (const auto& [key, link] : links_)
    if (const auto due = link->due(); due && (!first || *due < *first)) first = due;
  return first;
}

void RecvChannelTable::drop(ContextId peer, const Error& cause) {
  for (const auto& [key, link] : links_)
    if (link->peer() == peer) link->end(cause);
}

void RecvChannelTable::close() {
  for (const auto& [key, link] : links_) close_socket(*link);
  links_.clear();
  epoll_.remove(listener_.get());
  listener_.reset();
}

}  // namespace ringdist::shm
