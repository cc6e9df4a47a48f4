#include "transport/shm/recv_channel.h"

#include <algorithm>

namespace ringdist::shm {
namespace {

constexpr size_t kMappedStep = size_t{1} << 20;
constexpr auto kHelloTime = std::chrono::seconds(5);
constexpr auto kAnswerTime = std::chrono::seconds(30);
constexpr auto kAnswerAgain = std::chrono::milliseconds(5);

}  // namespace

void RecvChannel::on_event() {
  if (ended()) return;
  if (bell_) return receive_exports();
  auto greeted = receive_hello(socket_, me_, /*reads=*/true);
  if (!greeted.ok()) {
    if (greeted.error().kind() == ErrorKind::kSystem) refuse_hello(socket_, me_);
    return end(greeted.error());
  }
  if (!greeted.value()) return;
  if (greeted.value()->for_exports) {
    for_exports_ = greeted.value()->hello;
    return;
  }
  auto bell = bells_.add(greeted.value()->hello.from, std::move(greeted.value()->write_end));
  if (!bell.ok()) return end(bell.error());
  counter_ = own_.take_counter();
  if (!counter_)
    return end(Error(ErrorKind::kSystem, "too many processes of this host send to it"));
  memory_ = std::move(greeted.value()->segment);
  chunks_ = std::move(greeted.value()->chunks);
  bell_ = std::move(bell.value());
  peer_ = greeted.value()->hello.from;
  ring_index_ = greeted.value()->hello.index;
  ring_ = &reinterpret_cast<const ShmSegment*>(memory_.data())->rings[ring_index_];
  answer();
}

void RecvChannel::answer() {
  const TimePoint now = Clock::now();
  bool later = false;
  const Error error =
      send_hello(socket_, me_, *peer_, *counter_, own_.file(), own_.doorbell().write_end(), &later);
  answer_again_.reset();
  if (error && later && now - since_ < kAnswerTime)
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

// That this connection ends is no end of the link: messages may still name what came over it.
void RecvChannel::receive_exports() {
  const Error error = has_exports_ ? imports_.on_event(socket_) : Error();
  if (!error) return;
  has_exports_ = false;
  if (error.kind() != ErrorKind::kPeerLost) end(error);
}

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
  // Another process's memory: read once, believed within bounds only.
  const Slot& slot = ring_->slots[slots_.slot()];
  const uint32_t header = slot.header.load(std::memory_order_relaxed);
  if ((header & kLoad) != 0) on_event();
  const size_t header_size = header & kHeaderSize;
  const size_t size = *static_cast<const volatile uint32_t*>(&slot.payload_size);
  const auto bytes = header_size <= kMaxHeaderBytes ? payload(slot, header, size) : std::nullopt;
  if (slots_.is_absurd(published()) || !bytes) {
    end(Error(ErrorKind::kProtocol, "a message that is not in the peer's memory"));
    last_ = slots_.consumed();
    return;
  }
  receiver.on_message({slot.bytes.data(), header_size}, {*bytes, slot.header, kWithdrawn});
  const auto& writer = reinterpret_cast<const ShmSegment*>(memory_.data())->front;
  if (slots_.consume(own_.front().consumed[*counter_].value, writer.sleep)) bell_->ring();
  imports_.read_until(slots_.consumed());
}

std::optional<ConstBytes> RecvChannel::payload(const Slot& slot, uint32_t header, size_t bytes) {
  const uint64_t at = *static_cast<const volatile uint64_t*>(&slot.payload_at);
  if ((header & kExported) != 0) return imports_.find(at, bytes);
  const size_t header_size = header & kHeaderSize;
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
  if (bell_) bell_->ring();
}

bool RecvChannel::is_stranger(TimePoint now) const { return !peer_ && now - since_ > kHelloTime; }

RecvChannel::~RecvChannel() {
  if (counter_) own_.give_back_counter(*counter_);
}

}  // namespace ringdist::shm
