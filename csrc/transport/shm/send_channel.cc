#include "transport/shm/send_channel.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "os/socket.h"

namespace ringdist::shm {
namespace {

constexpr Duration kFirstPause = std::chrono::milliseconds(2);
constexpr Duration kLastPause = std::chrono::milliseconds(100);
constexpr auto kDialTime = std::chrono::seconds(30);     // after that the cause is reported
constexpr auto kGreetingTime = std::chrono::seconds(1);  // a stopped peer must not delay others

}  // namespace

void SendChannel::dial() {
  if (!own_.may_greet()) return;
  const TimePoint now = Clock::now();
  if (now < dial_again_) return;
  ConnectAttempt attempt = connect_to_own_user(address_);
  if (attempt.failure && passes(attempt.failure->errno_value))
    return dial_later(now, attempt.failure->error);
  if (attempt.failure) return close_with(attempt.failure->error);
  socket_ = std::move(attempt.fd);
  proof_ = KeyProof::dial(tls_key_, me_, peer_);
  if (proof_.is_over()) return greet(now);
  begin_greeting(now);
  prove();
}

void SendChannel::begin_greeting(TimePoint now) {
  state_ = State::kGreeting;
  if (greeting_since_) return;
  greeting_since_ = now;
  own_.begin_greeting();
}

void SendChannel::greet(TimePoint now) {
  auto ring = own_.take_ring();
  if (!ring.ok()) return close_with(ring.error());
  bool later = false;
  if (Error error = send_hello(socket_, me_, peer_, ring.value(), own_.file(),
                               own_.doorbell().write_end(), &later)) {
    own_.give_back_ring(ring.value());
    return later ? dial_later(now, error) : close_with(error);
  }
  ring_ = ring.value();
  begin_greeting(now);
}

void SendChannel::prove() {
  const auto over = proof_.advance(socket_);
  if (!over.ok()) return end(over.error());
  if (over.value()) greet(Clock::now());
}

void SendChannel::dial_later(TimePoint now, const Error& cause) {
  if (dial_pause_ == Duration(0)) dialing_since_ = now;
  if (now - dialing_since_ > kDialTime) return close_with(cause);
  end_greeting();
  state_ = State::kDialing;
  dial_pause_ = std::clamp(2 * dial_pause_, kFirstPause, kLastPause);
  dial_again_ = now + dial_pause_;
}

void SendChannel::end_greeting() {
  if (!greeting_since_) return;
  greeting_since_.reset();
  own_.end_greeting();
}

void SendChannel::on_event() {
  if (!proof_.is_over()) return prove();
  if (doorbell_) return poll();
  auto greeted = receive_hello(socket_, me_, /*reads=*/false);
  if (!greeted.ok()) {
    const bool refused =
        state_ == State::kGreeting && greeted.error().kind() == ErrorKind::kPeerLost;
    return end(refused ? greeted.error().suffixed(" before it answered; its own log may say why")
                       : greeted.error());
  }
  if (!greeted.value()) return;
  end_greeting();
  if (greeted.value()->hello.from != peer_ || greeted.value()->for_exports)
    return end(Error(ErrorKind::kProtocol, "another process answers"));
  auto doorbell = bells_.add(peer_, std::move(greeted.value()->write_end));
  if (!doorbell.ok()) return end(doorbell.error());
  counter_ = greeted.value()->hello.index;
  peer_memory_ = std::move(greeted.value()->segment);
  doorbell_ = std::move(doorbell.value());
  if (!has_ended()) state_ = State::kOpen;
}

// Handles the peer's answers about exports, after the handshake.
void SendChannel::poll() {
  if (has_ended()) return;
  const Error error = exports_.on_event();
  if (!error) return;
  reclaim(consumed());
  close_with(error);
}

void SendChannel::not_watched(const Error& cause) {
  if (!socket_) return exports_.lose_socket();
  close_with(cause);
  ring_.reset();  // the peer's reads can no longer be observed, so the ring is never reused
  end();
}

// If the channel was renewed, it has ended before. Only the messages that wait for the next one are
// left then.
void SendChannel::close_with(const Error& cause) {
  if (broken()) return;
  error_ = cause;
  if (!std::exchange(renewed_, false)) {
    state_ = State::kBroken;
    end_greeting();
    withdraw_all();
    exports_.clear();
    if (ring_) {
      slots_.end(own_.ring(*ring_).published.value);
      if (doorbell_) doorbell_->ring();
    } else {
      end();
    }
  }
  for (PendingSend& parcel : std::exchange(waiting_, {})) fail(parcel);
}

void SendChannel::check_end() {
  if (state_ != State::kOpen && state_ != State::kBroken) return;
  if (!doorbell_ || !slots_.reader_has_ended(peer_counter())) return;
  if (state_ == State::kOpen) reclaim(consumed());
  end(PeerDoorbells::closed());
}

void SendChannel::on_peer_closed() {
  if (state_ == State::kOpen) reclaim(consumed());
  close_with(PeerDoorbells::closed());
  end();
}

void SendChannel::fail(PendingSend& parcel) {
  if (parcel.chunk != kNone) give_back(parcel.chunk);
  tell(parcel.send_id, error_);
}

void SendChannel::tell(SendId send_id, const Error& error) { receiver_.end_send(send_id, error); }

void SendChannel::give_back(ChunkPool::Id chunk) {
  large_ -= own_.chunks().is_large(chunk);
  own_.chunks().release(chunk);
}

void SendChannel::end(const Error& cause) {
  if (!has_ended()) close_with(cause);
  end();
}

// Ends the channel for good, because the peer reads no more: frees all slots and the ring.
void SendChannel::end() {
  if (state_ == State::kOver) return;
  state_ = State::kOver;
  reclaim(slots_.published());
  if (ring_) own_.give_back_ring(*ring_);
  peer_memory_.reset();
}

// Begins another channel once the former one is over. Messages that were sent since renew() wait
// for it.
void SendChannel::begin_again() {
  if (!renewed_ || state_ != State::kOver || socket()) return;
  renewed_ = false;
  error_ = {};
  ring_.reset();
  doorbell_.reset();
  proof_ = {};
  asked_ -= std::min(asked_, slots_.published());
  slots_ = {};
  dial_pause_ = {};
  dial_again_ = {};
  state_ = waiting_.empty() ? State::kIdle : State::kDialing;
}

void SendChannel::send(ConstBytes header, ConstBytes payload, SendId send_id, bool spare) {
  PendingSend parcel{{}, header.size(), payload, kNone, send_id};
  parcel.spare = spare;
  std::ranges::copy(header, parcel.header.begin());
  enqueue(std::move(parcel));
}

void SendChannel::send_chunk(ConstBytes header, ChunkPool::Id chunk, size_t bytes, SendId send_id) {
  PendingSend parcel{{}, header.size(), own_.chunks().bytes(chunk).first(bytes), chunk, send_id};
  std::ranges::copy(header, parcel.header.begin());
  const bool large = own_.chunks().is_large(chunk);
  if (large && large_ >= kMostLarge) {
    parcel.copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(parcel.copy.get(), parcel.payload.data(), bytes);
    parcel.payload = {parcel.copy.get(), bytes};
    parcel.chunk = kNone;
  } else {
    own_.chunks().hold(chunk);
    large_ += large;
  }
  enqueue(std::move(parcel));
}

void SendChannel::enqueue(PendingSend parcel) {
  begin_again();
  if (state_ == State::kIdle) {
    state_ = State::kDialing;
    dial();
  }
  if (broken()) return fail(parcel);
  if (state_ == State::kOpen && waiting_.empty() && publish(parcel)) {
    if (!parcel.exported) tell(parcel.send_id, {});
    return;
  }
  if (broken()) return fail(parcel);
  waiting_.push_back(std::move(parcel));
}

const ControlBlock& SendChannel::peer_front() const {
  return *reinterpret_cast<const ControlBlock*>(peer_memory_.data());
}

// Returns the shared word in which the peer counts consumed messages.
const DekkerWord<uint64_t, ConsumedOrders>& SendChannel::peer_counter() const {
  return peer_front().consumed[counter_].value;
}

uint64_t SendChannel::consumed() const { return slots_.consumed(peer_counter()); }

bool SendChannel::reclaim(uint64_t until) {
  const bool any = slots_.reclaimed() < until;
  while (slots_.reclaimed() < until) {  // callbacks may send more
    const SlotResources held = std::exchange(held_[slots_.reclaim()], {});
    if (held.chunk != kNone) {
      --chunks_;
      give_back(held.chunk);
    }
    if (held.send_id == kNoSendId) continue;
    --exported_;
    tell(held.send_id, {});
  }
  if (any && asked_ > 0) silent_since_ = Clock::now();
  return any;
}

// Reclaims slots up to the first with a send to report. The ends of other sends must not be
// reported from inside send().
bool SendChannel::make_room() {
  uint64_t until = slots_.reclaimed();
  for (const uint64_t end = consumed(); until < end; ++until)
    if (held_[until % kSlots].send_id != kNoSendId) break;
  return reclaim(until);
}

// A message in the ring gets the mark before its memory changes; the peer looks at it after reading
// (base/payload.h). A waiting one is dropped.
void SendChannel::revoke_payload(SendId send_id) {
  for (PendingSend& parcel : waiting_)
    if (parcel.send_id == send_id && parcel.chunk == kNone && !parcel.copy) parcel.withdrawn = true;
  for (uint64_t i = slots_.reclaimed(); i < slots_.published(); ++i)
    if (held_[i % kSlots].send_id == send_id)
      own_.ring(*ring_).slots[i % kSlots].header.fetch_or(kRevoked, std::memory_order_seq_cst);
}

// Revokes the exported payloads and ends their sends with error_. The peer may read on, but this
// process does not wait for it.
void SendChannel::withdraw_all() {
  for (uint64_t i = slots_.reclaimed(); i < slots_.published() && exported_ > 0; ++i) {
    const SendId send_id = held_[i % kSlots].send_id;
    if (send_id == kNoSendId) continue;
    revoke_payload(send_id);
    held_[i % kSlots].send_id = kNoSendId;
    --exported_;
    tell(send_id, error_);
  }
}

// Decides if the peer reads the payload in place, which costs this process nothing. If the peer has
// enough such payloads to read and this process is idle, as the root of a broadcast is, every
// second one is copied here.
bool SendChannel::is_exported(PendingSend& parcel) {
  const bool shares = parcel.spare && exported_ > std::max<size_t>(1, chunks_);
  if (parcel.send_id != kNoSendId && !shares)
    parcel.exported = exports_.place(*ring_, parcel.payload);
  return parcel.exported.has_value();
}

// Finds a place for the payload: the slot, the shared tensor where the peer can read it, or a
// chunk, into which it is copied. Returns false if no chunk is free.
bool SendChannel::place(PendingSend& parcel) {
  if (parcel.chunk != kNone || is_short(parcel.header_size, parcel.payload.size())) return true;
  if (is_exported(parcel)) return true;
  // Waiting messages count in large_ too. If the ring holds no chunk, they must not block this
  // message, which is ahead of them.
  if (large_ >= kMostLarge && chunks_ > 0) return false;
  const auto chunk = own_.chunks().take(parcel.payload.size(), /*reserved=*/chunks_ == 0);
  if (!chunk) {
    // If the ring holds chunks, one of them may be freed soon, so lack of memory is no failure yet.
    if (chunks_ == 0 && own_.chunks().error()) close_with(own_.chunks().error());
    return false;
  }
  parcel.chunk = *chunk;
  large_ += own_.chunks().is_large(*chunk);
  std::memcpy(own_.chunks().bytes(*chunk).data(), parcel.payload.data(), parcel.payload.size());
  return true;
}

// The fields of the slot are plain or relaxed stores. The store of the published count, which comes
// last, makes them visible to the peer.
bool SendChannel::publish(PendingSend& parcel) {
  if (slots_.full() && !make_room()) return false;
  if (!place(parcel) && !(state_ == State::kOpen && make_room() && place(parcel))) return false;
  Ring& ring = own_.ring(*ring_);
  Slot& slot = ring.slots[slots_.slot()];
  const bool here = parcel.chunk == kNone && !parcel.exported;
  slot.header.store(static_cast<uint32_t>(parcel.header_size) | (parcel.exported ? kExported : 0) |
                        (exports_.take_hint() ? kExportAnnounced : 0),
                    std::memory_order_relaxed);
  slot.payload_size = static_cast<uint32_t>(parcel.payload.size());
  slot.payload_at = here              ? 0
                    : parcel.exported ? *parcel.exported
                                      : own_.chunks().offset(parcel.chunk);
  std::memcpy(slot.bytes.data(), parcel.header.data(), parcel.header_size);
  if (here && !parcel.payload.empty())
    std::memcpy(slot.bytes.data() + short_payload_at(parcel.header_size), parcel.payload.data(),
                parcel.payload.size());
  held_[slots_.slot()] = {parcel.chunk, parcel.exported ? parcel.send_id : kNoSendId};
  if (parcel.chunk != kNone) ++chunks_;
  if (parcel.exported) ++exported_;
  if (slots_.publish(ring.published.value, peer_front().sleep)) doorbell_->ring();
  return true;
}

void SendChannel::begin_flush() {
  asked_ = slots_.published() + waiting_.size();
  silent_since_ = Clock::now();
}

std::optional<TimePoint> SendChannel::due() const {
  if (renewed_ && state_ == State::kOver) return Clock::now();
  if (state_ != State::kDialing) return std::nullopt;
  return own_.may_greet() ? dial_again_ : Clock::now() + kLastPause;
}

bool SendChannel::advance() {
  begin_again();
  if (state_ == State::kDialing) dial();
  if (greeting_since_ && Clock::now() - *greeting_since_ > kGreetingTime) end_greeting();
  if (state_ != State::kOpen) return false;
  exports_.detach_freed();
  if (slots_.empty() && waiting_.empty()) return false;
  bool any = reclaim(consumed());
  while (state_ == State::kOpen && !waiting_.empty() && send_next()) any = true;
  return any;
}

bool SendChannel::send_next() {
  if (!waiting_.front().withdrawn && !publish(waiting_.front())) return false;
  const PendingSend closed = std::move(waiting_.front());
  waiting_.pop_front();
  if (closed.withdrawn)
    tell(closed.send_id, Error(ErrorKind::kAborted, "the operation has ended"));
  else if (!closed.exported)
    tell(closed.send_id, {});
  return true;
}

}  // namespace ringdist::shm
