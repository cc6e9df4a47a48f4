#include "transport/shm/shm_transport.h"

#include <algorithm>

#include "base/check.h"
#include "os/shared_block_registry.h"
#include "os/socket.h"

namespace ringdist {
namespace {

using shm::ChunkPool;
using shm::SendChannel;
using shm::SleepState;

// Keys in the epoll set: of the doorbell, and of the first socket of each table.
constexpr uint64_t kDoorbellKey = 0;
constexpr uint64_t kFirstOutKey = 1;  // plus the index in used_
constexpr uint64_t kFirstInKey = uint64_t{1} << 32;
constexpr uint64_t kFirstDoorbellKey = uint64_t{1} << 48;
// While awake, the transport looks at its sockets this often.
constexpr auto kLookTime = std::chrono::milliseconds(1);
// A flush does not wait for a peer that consumes nothing for this long.
constexpr auto kSilence = std::chrono::seconds(2);

Error process_is_gone() { return Error(ErrorKind::kPeerLost, "the peer's process is gone"); }

}  // namespace

Error shm_viable(const TransportConfig&) { return create_memory("ringdist", 4096).error(); }

Result<std::unique_ptr<Transport>> shm_create(const TransportConfig& config,
                                              TransportDelegate& receiver) {
  return ShmTransport::create(config, receiver);
}

Result<std::unique_ptr<Transport>> ShmTransport::create(const TransportConfig& config,
                                                        TransportDelegate& receiver) {
  auto own = shm::OwnShmSegment::create();
  if (!own.ok()) return own.error();
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  std::unique_ptr<ShmTransport> out(
      new ShmTransport(config, receiver, std::move(own.value()), std::move(epoll.value())));
  if (Error error = out->epoll_.add(out->own_->doorbell().get(), EPOLLIN, kDoorbellKey))
    return error;
  if (Error error = out->inbound_.listen(kFirstInKey)) return error;
  SharedBlockRegistry::of_process().watch(out->own_->doorbell());
  return std::unique_ptr<Transport>(std::move(out));
}

ShmTransport::ShmTransport(const TransportConfig& config, TransportDelegate& receiver,
                           std::unique_ptr<shm::OwnShmSegment> own, Epoll epoll)
    : me_(config.context_id),
      max_payload_(std::min(config.max_payload, shm::kLargeChunk)),
      receiver_(receiver),
      tls_key_(config.tls_key),
      own_(std::move(own)),
      epoll_(std::move(epoll)),
      bells_(epoll_, kFirstDoorbellKey),
      inbound_(
          *own_, bells_, me_, epoll_,
          [this](ContextId from, pid_t pid) {
            const Peer* peer = find(from);
            return peer == nullptr ? std::nullopt : std::optional(is_listener(pid, peer->address));
          },
          tls_key_) {}

std::vector<std::byte> ShmTransport::address() const {
  const ConstBytes bytes = std::as_bytes(std::span(inbound_.address()));
  return {bytes.begin(), bytes.end()};
}

Error ShmTransport::add_peer(ContextId id, ConstBytes address) {
  if (address.empty())
    return Error(ErrorKind::kPeerLost, "the peer published no name in shared memory");
  const std::string name(reinterpret_cast<const char*>(address.data()), address.size());
  bool is_new = false;
  {
    std::lock_guard lock(peers_mutex_);
    auto& slot = peers_[id];
    is_new = !slot;
    if (is_new)
      slot = std::make_unique<Peer>(*own_, bells_, receiver_, me_, id, name, tls_key_.get());
  }
  if (is_new) own_->doorbell().ring();  // its hello may be waiting
  renew(id);
  return {};
}

// The cause that ended the former channel may be gone, so the next send dials again.
void ShmTransport::renew(ContextId id) {
  Peer* peer = find(id);
  if (!peer || !peer->over.exchange(false)) return;
  peer->broken = false;
  peer->renewed = true;
}

bool ShmTransport::reaches(ContextId id) const {
  const Peer* peer = find(id);
  return peer && !peer->broken;
}

ShmTransport::Peer* ShmTransport::find(ContextId id) const {
  std::lock_guard lock(peers_mutex_);
  auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

ShmTransport::Peer* ShmTransport::to_send_to(ContextId id) const {
  Peer* peer = closed_ ? nullptr : find(id);
  if (peer && peer->renewed.exchange(false)) {
    peer->link.renew();
    peer->noticed = false;
  }
  return peer;
}

void ShmTransport::send(ContextId id, ConstBytes header, ConstBytes payload, SendId send_id) {
  check(payload.size() <= max_payload_ && header.size() <= kMaxHeaderBytes, "message too large");
  Peer* peer = to_send_to(id);
  if (!peer) return refuse(send_id);
  const bool spare = payload.size() > shm::kMostCopied && !inbound_.has_messages();
  peer->link.send(header, payload, send_id, spare);
  update(*peer);
}

void ShmTransport::revoke_payload(ContextId id, SendId send_id) {
  if (Peer* peer = find(id)) peer->link.revoke_payload(send_id);
}

bool ShmTransport::would_copy(ConstBytes payload) const {
  return payload.size() > shm::kSlotRoom && !SharedBlockRegistry::of_process().find(payload);
}

std::optional<Bytes> ShmTransport::reserve(size_t bytes) {
  check(bytes <= max_payload_, "reservation above the transport's largest message");
  ChunkPool& chunks = own_->chunks();
  const auto chunk = chunks.take(bytes, /*reserved=*/false);
  if (!chunk) return std::nullopt;
  return chunks.bytes(*chunk).first(bytes);
}

void ShmTransport::commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) {
  const ChunkPool::Id chunk = own_->chunks().find(reserved.data());
  for (const OutgoingMessage& out : to) {
    Peer* peer = to_send_to(out.peer);
    if (!peer) {
      refuse(out.send_id);
      continue;
    }
    peer->link.send_chunk(out.header, chunk, used, out.send_id);
    update(*peer);
  }
  own_->chunks().release(chunk);
}

void ShmTransport::refuse(SendId send_id) {
  receiver_.end_send(send_id, Error(ErrorKind::kPeerLost, "no address of this peer is known"));
}

// After a call to its channel, a peer may have a socket, need none any more, or be broken.
void ShmTransport::update(Peer& peer) {
  if (!peer.used) {
    peer.used = true;
    used_.push_back(&peer);
  }
  if (!peer.watched && peer.link.socket()) {
    const auto at = std::find(used_.begin(), used_.end(), &peer) - used_.begin();
    const uint64_t key = kFirstOutKey + static_cast<uint64_t>(at);
    if (Error error = epoll_.add(peer.link.socket().get(), EPOLLIN, key))
      peer.link.not_watched(error);
    peer.watched = true;
  }
  if (peer.link.broken() && !std::exchange(peer.noticed, true)) {
    peer.broken = true;
    newly_broken_.push_back(&peer);
  }
  if (peer.link.socket() && !peer.link.needs_socket()) {
    epoll_.remove(peer.link.socket().get());
    peer.link.close_socket();
    peer.watched = false;
  }
}

bool ShmTransport::progress() {
  const TimePoint now = Clock::now();
  const bool was_asleep = std::exchange(asleep_, false);
  if (was_asleep) own_->front().sleep.store_relaxed(SleepState::kAwake);
  // Sockets come first, because a channel that opens has something to send.
  const bool load = was_asleep || must_poll_sockets(now);
  if (load) poll_sockets(now);
  bool any = false;
  for (size_t i = 0; i < used_.size(); ++i) {  // callbacks may add more
    if (load) used_[i]->link.check_end();
    any |= used_[i]->link.advance();
    update(*used_[i]);
  }
  // Delivers after the loop above has ended the sends that peers have read. A peer's answer may
  // overwrite such a payload; if its send were still open, the message would have to be kept.
  any |= inbound_.deliver(receiver_);
  if (load || inbound_.has_finished())
    any |= inbound_.reap(now, [this](ContextId peer, const Error& cause) {
      receiver_.on_connection_lost(name(), peer, cause);
    });
  return report_broken() || any;
}

// A broken channel is not reported before everything that its peer has sent is delivered.
bool ShmTransport::report_broken() {
  bool any = false;
  for (Peer* peer : std::exchange(newly_broken_, {})) {
    if (inbound_.has_messages_of(peer->link.peer())) {
      newly_broken_.push_back(peer);
      continue;
    }
    peer->over = !peer->closed;
    receiver_.on_connection_lost(name(), peer->link.peer(), peer->link.error());
    any = true;
  }
  return any;
}

bool ShmTransport::must_poll_sockets(TimePoint now) const {
  return now - last_look_ > kLookTime ||
         std::any_of(used_.begin(), used_.end(),
                     [now](const Peer* peer) { return peer->link.expects_message(now); });
}

void ShmTransport::poll_sockets(TimePoint now) {
  last_look_ = now;
  for (const auto& event : epoll_.wait(Duration(0))) {
    if (event.key == kDoorbellKey) {
      own_->doorbell().drain();
      inbound_.check_waiting();
    }
    if (event.key == kDoorbellKey || inbound_.on_event(event.key)) continue;
    if (const auto closed = bells_.on_event(event.key)) {
      on_peer_closed(*closed);
      continue;
    }
    const size_t at = event.key - kFirstOutKey;
    if (at >= used_.size()) continue;
    Peer& peer = *used_[at];
    peer.link.on_event();
    update(peer);
  }
}

void ShmTransport::on_peer_closed(ContextId id) {
  inbound_.drop(id, shm::PeerDoorbells::closed());
  Peer* peer = find(id);
  if (!peer) return;
  peer->closed = true;
  peer->over = false;
  if (!peer->used) return;
  peer->link.on_peer_closed();
  update(*peer);
}

// Publishes the sleep state, then checks for work a last time. A sender publishes first and checks
// the sleep state afterwards.
bool ShmTransport::arm() {
  const bool waits =
      std::any_of(used_.begin(), used_.end(), [](const Peer* peer) { return peer->link.waits(); });
  asleep_ = true;
  return own_->front().sleep.prepare_sleep(
      waits ? SleepState::kForRoom : SleepState::kForMessages, [&] {
        // Memory that one channel reclaims may be what another waits for.
        const bool room = waits && std::any_of(used_.begin(), used_.end(), [](const Peer* peer) {
                            return peer->link.has_room_again();
                          });
        return !newly_broken_.empty() || inbound_.has_messages() || inbound_.has_finished() || room;
      });
}

std::optional<TimePoint> ShmTransport::due() const {
  std::optional<TimePoint> first = inbound_.due();
  for (const Peer* peer : used_)
    if (const auto due = peer->link.due(); due && (!first || *due < *first)) first = due;
  return first;
}

bool ShmTransport::drained(ContextId id) {
  inbound_.drop(id, process_is_gone());  // published messages stay readable
  return !inbound_.has_messages_of(id);
}

void ShmTransport::drop_peer(ContextId id) {
  inbound_.drop(id, process_is_gone());
  Peer* peer = find(id);
  if (!peer) return;
  peer->closed = true;
  peer->over = false;
  peer->broken = true;
  peer->noticed = true;  // the caller needs no report
  peer->link.close_with(process_is_gone());
  update(*peer);
}

void ShmTransport::begin_flush() {
  for (Peer* peer : used_) peer->link.begin_flush();
}

bool ShmTransport::flushed() const {
  const TimePoint now = Clock::now();
  return std::all_of(used_.begin(), used_.end(), [now](const Peer* peer) {
    return peer->link.flushed() || now - peer->link.silent_since() > kSilence;
  });
}

void ShmTransport::close() {
  if (mark_.forked() || std::exchange(closed_, true)) return;
  SharedBlockRegistry::of_process().unwatch(own_->doorbell());
  for (size_t i = 0; i < used_.size(); ++i) {
    used_[i]->link.close_with(Error(ErrorKind::kAborted, "the transport closed"));
    epoll_.remove(used_[i]->link.socket().get());
    used_[i]->link.close_socket();
  }
  inbound_.close();
  bells_.close();
  epoll_.remove(own_->doorbell().get());
  own_->doorbell().close();  // peers notice that nothing follows
}

}  // namespace ringdist
