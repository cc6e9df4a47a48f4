#include "transport/shm/inlink.h"

namespace ringdist::shm {
namespace {

constexpr auto kHelloTime = std::chrono::seconds(5);

}  // namespace

void Inlink::on_event() {
  if (ended()) return;
  auto greeted = receive_hello(socket_, me_, kSegmentBytes);
  if (!greeted.ok()) {
    if (greeted.error().kind() == ErrorKind::kSystem) refuse_hello(socket_, me_);
    return end(greeted.error());
  }
  if (!greeted.value()) return;
  if (ring_) return end(Error(ErrorKind::kProtocol, "a second greeting"));
  counter_ = own_.take_counter();
  if (!counter_)
    return end(Error(ErrorKind::kSystem, "too many processes of this host send to it"));
  memory_ = std::move(greeted.value()->segment);
  doorbell_ = std::move(greeted.value()->doorbell);
  peer_ = greeted.value()->hello.from;
  ring_ = &reinterpret_cast<const Segment*>(memory_.data())->rings[greeted.value()->hello.index];
  if (Error error = send_hello(socket_, me_, *peer_, *counter_, own_.file(), own_.doorbell()))
    end(error);
}

uint64_t Inlink::published() const { return ended() ? last_ : ring_->published.value.look(); }

bool Inlink::deliver(Receiver& receiver, int most) {
  bool any = false;
  for (; most > 0 && has_messages() && receiver.takes_more(); --most) {
    consume_one(receiver);
    any = true;
  }
  return any;
}

void Inlink::consume_one(Receiver& receiver) {
  // Another process's memory: read once, believed within bounds only.
  const Slot& slot = ring_->slots[slots_.slot()];
  const size_t header = *static_cast<const volatile uint32_t*>(&slot.header_size);
  const size_t payload = *static_cast<const volatile uint32_t*>(&slot.payload_size);
  const uint64_t at = *static_cast<const volatile uint64_t*>(&slot.payload_at);
  const bool here = at == 0;
  if (slots_.is_absurd(published()) || header > kMaxHeaderBytes ||
      (here && !is_short(header, payload)) ||
      (!here && (at > memory_.size() || payload > memory_.size() - at))) {
    end(Error(ErrorKind::kProtocol, "a message that is not in the peer's memory"));
    last_ = slots_.consumed();
    return;
  }
  const std::byte* data = here ? slot.bytes.data() + short_payload_at(header) : memory_.data() + at;
  receiver.on_message({slot.bytes.data(), header}, {data, payload});
  const auto& writer = reinterpret_cast<const Segment*>(memory_.data())->front;
  if (slots_.consume(own_.front().consumed[*counter_].value, writer.sleep)) doorbell_->signal();
}

void Inlink::end(const Error& cause) {
  if (ended()) return;
  last_ = ring_ ? published() : 0;
  error_ = cause;
}

bool Inlink::is_stranger(TimePoint now) const { return !peer_ && now - since_ > kHelloTime; }

Inlink::~Inlink() {
  if (counter_) own_.give_back_counter(*counter_);
}

}  // namespace ringdist::shm
