#include "transport/tcp/tcp_transport.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/log.h"
#include "os/random.h"
#include "os/socket.h"

namespace ringdist {
namespace {

using tcp::TcpRecvChannel;

constexpr size_t kTcpStagingBuffers = 64;
constexpr size_t kMostAccepted = 4096;  // connections that wait for progress()
constexpr size_t kMostInbound = 16384;  // receiving channels
// Keys in the epoll set: of wake_, of the first sending channel, of the first receiving one. Each
// channel has a key for each path.
constexpr uint64_t kWakeKey = 0;
constexpr uint64_t kFirstSendKey = tcp::kMostPaths;
constexpr uint64_t kFirstRecvKey = uint64_t{1} << 32;
// drained() waits this much longer, because a notice of an end may come before the last bytes.
constexpr auto kLastBytesTime = std::chrono::milliseconds(50);
// drained() waits no longer than this for an idle progress(), as other peers may send all the time.
constexpr auto kLongestDrain = std::chrono::milliseconds(500);
// A flush does not wait for a peer that acknowledges nothing for this long.
constexpr auto kSilentFlush = std::chrono::seconds(2);

std::vector<std::string> without_ports(const std::vector<std::string>& addresses) {
  std::vector<std::string> out;
  for (const std::string& address : addresses) out.push_back(without_port(address));
  return out;
}

DataSecret random_secret() {
  const std::array<uint64_t, 2> numbers{random_id(), random_id()};
  DataSecret out;
  static_assert(sizeof numbers == sizeof out);
  std::memcpy(out.data(), numbers.data(), sizeof out);
  return out;
}

}  // namespace

Error tcp_viable(const TransportConfig&) { return {}; }

Result<std::unique_ptr<Transport>> tcp_create(const TransportConfig& config,
                                              TransportDelegate& receiver) {
  return TcpTransport::create(config, receiver);
}

Result<std::unique_ptr<Transport>> TcpTransport::create(const TransportConfig& config,
                                                        TransportDelegate& receiver) {
  check(config.data_port && !config.tcp_addresses.empty(), "a transport tcp without a port");
  auto epoll = Epoll::create();
  if (!epoll.ok()) return epoll.error();
  auto wake = EventFd::create();
  if (!wake.ok()) return wake.error();
  std::unique_ptr<TcpTransport> out(
      new TcpTransport(config, receiver, std::move(epoll.value()), std::move(wake.value())));
  if (Error error = out->epoll_.add(out->wake_.get(), EPOLLIN, kWakeKey)) return error;
  out->port_->add(out->own_.secret, [self = out.get()](Stream socket, const DataHello& hello) {
    std::lock_guard lock(self->accepted_mutex_);
    if (self->accepted_.size() >= kMostAccepted) return;
    self->accepted_.emplace_back(std::move(socket), hello);
    self->in_use_ = true;
    self->wake_.signal();
  });
  return std::unique_ptr<Transport>(std::move(out));
}

TcpTransport::TcpTransport(const TransportConfig& config, TransportDelegate& receiver, Epoll epoll,
                           EventFd wake)
    : me_(config.context_id),
      max_payload_(config.max_payload),
      peer_timeout_(config.peer_timeout),
      port_(config.data_port),
      tls_key_(config.tls_key),
      receiver_(receiver),
      staging_(config.max_payload, kTcpStagingBuffers),
      own_{random_secret(), config.tcp_addresses},
      own_ips_(without_ports(config.tcp_addresses)),
      epoll_(std::move(epoll)),
      wake_(std::move(wake)),
      next_recv_key_(kFirstRecvKey) {}

// ---- Peers

Error TcpTransport::add_peer(ContextId id, ConstBytes address) {
  if (address.empty()) return Error(ErrorKind::kPeerLost, "the peer published no TCP address");
  auto to = tcp::DataAddress::decode(address);
  if (!to) return Error(ErrorKind::kProtocol, "the peer's TCP address has another format");
  {
    std::lock_guard lock(peers_mutex_);
    auto& slot = peers_[id];
    if (!slot) {
      const uint64_t key = kFirstSendKey + tcp::kMostPaths * by_key_.size();
      slot = std::make_unique<Peer>(*this, id, std::move(*to), key);
      by_key_.push_back(slot.get());
    }
  }
  renew(id);
  return {};
}

// The cause that ended the former channel may be gone, so the next send dials again.
void TcpTransport::renew(ContextId id) {
  Peer* peer = find(id);
  if (!peer || !peer->over.exchange(false)) return;
  peer->broken = false;
  peer->renewed = true;
}

bool TcpTransport::reaches(ContextId id) const {
  const Peer* peer = find(id);
  return peer && !peer->broken;
}

TcpTransport::Peer* TcpTransport::find(ContextId id) const {
  std::lock_guard lock(peers_mutex_);
  const auto it = peers_.find(id);
  return it == peers_.end() ? nullptr : it->second.get();
}

std::vector<TcpTransport::Peer*> TcpTransport::all_peers() const {
  std::lock_guard lock(peers_mutex_);
  return by_key_;
}

void TcpTransport::update(Peer& peer) {
  if (peer.channel.broken() && !std::exchange(peer.noticed, true)) {
    peer.broken = true;
    newly_broken_.push_back(&peer);
  }
  wake_at(peer.channel.due());
}

void TcpTransport::wake_at(std::optional<TimePoint> time) {
  if (time) timer_ = std::min(timer_, *time);
}

// ---- Sending

void TcpTransport::send(ContextId id, ConstBytes header, ConstBytes payload, SendId send_id) {
  check(payload.size() <= max_payload_ && header.size() <= kMaxHeaderBytes, "message too large");
  send_to(id, header, {payload, send_id, nullptr});
}

void TcpTransport::send_to(ContextId id, ConstBytes header, const tcp::OutgoingRecord& record) {
  Peer* peer = closed_ ? nullptr : find(id);
  if (!peer) {
    if (record.staged != nullptr) staging_.release(record.staged);
    const Error error(ErrorKind::kPeerLost, "no address of this peer is known");
    return receiver_.end_send(record.send_id, error);
  }
  if (peer->renewed.exchange(false) && !peer->gone) {
    peer->channel.renew();
    peer->noticed = false;
  }
  in_use_ = true;
  TcpRecvChannel* inbound = find_inbound(id);
  // A record that waits, or is not sent at all, would hold the count back.
  const bool carries = inbound && peer->channel.is_ready();
  const tcp::Handled handled = carries ? inbound->mark_acknowledged() : tcp::Handled();
  peer->channel.send(header, record, handled, Clock::now());
  update(*peer);
}

void TcpTransport::commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) {
  for (const OutgoingMessage& out : to) {
    staging_.hold(reserved.data());
    send_to(out.peer, out.header, {reserved.first(used), out.send_id, reserved.data()});
  }
  staging_.release(reserved.data());
}

void TcpTransport::revoke_payload(ContextId id, SendId send_id) {
  Peer* peer = find(id);
  if (!peer) return;
  peer->channel.keep_copy(send_id);
  wake_at(peer->channel.due());
}

// ---- Receiving

void TcpTransport::adopt_accepted(TimePoint now) {
  std::vector<std::pair<Stream, DataHello>> accepted;
  {
    std::lock_guard lock(accepted_mutex_);
    accepted.swap(accepted_);
  }
  for (auto& [socket, hello] : accepted) adopt(std::move(socket), hello, now);
}

// A higher channel number replaces the channel: the sender has given the former one up. A lower one
// is a connection that came late.
void TcpTransport::adopt(Stream socket, const DataHello& hello, TimePoint now) {
  const Peer* peer = find(hello.from);
  if (hello.to != me_ || (peer && peer->gone)) return;
  if (peer && !peer->channel.may_come_from(without_port(remote_address(socket.fd()))))
    return log(LogLevel::kDebug, "transport tcp: refused a connection that is not of its peer");
  if (TcpRecvChannel* channel = find_inbound(hello.from)) {
    if (hello.channel < channel->number()) return;
    if (hello.channel == channel->number()) {
      channel->connect(hello.path, std::move(socket), now);
      return wake_at(channel->due());
    }
    drop_inbound(hello.from);
  }
  if (inbound_.size() >= kMostInbound) return;
  const uint64_t key = std::exchange(next_recv_key_, next_recv_key_ + tcp::kMostPaths);
  auto& made = inbound_[hello.from];
  made = std::make_unique<TcpRecvChannel>(hello.from, hello.channel, max_payload_, epoll_, key);
  by_recv_key_[key] = made.get();
  made->connect(hello.path, std::move(socket), now);
  wake_at(made->due());
}

TcpRecvChannel* TcpTransport::find_inbound(ContextId from) const {
  const auto found = inbound_.find(from);
  return found == inbound_.end() ? nullptr : found->second.get();
}

TcpRecvChannel* TcpTransport::find_by_key(uint64_t key) const {
  const auto found = by_recv_key_.find(key - key % tcp::kMostPaths);
  return found == by_recv_key_.end() ? nullptr : found->second;
}

// The channel may be the one that is being read, so it is destroyed later.
void TcpTransport::drop_inbound(ContextId from) {
  const auto found = inbound_.find(from);
  if (found == inbound_.end()) return;
  found->second->close();
  by_recv_key_.erase(found->second->key());
  dropped_.push_back(std::move(found->second));
  inbound_.erase(found);
}

bool TcpTransport::read(uint64_t key, TimePoint now) {
  TcpRecvChannel* channel = find_by_key(key);
  if (!channel) return false;
  const auto on_handled = [&](const tcp::Handled& handled) {
    Peer* peer = find(channel->from());
    if (!peer) return;
    peer->channel.on_handled(handled, now);
    update(*peer);
  };
  const size_t path = key % tcp::kMostPaths;
  const bool any = channel->read(path, receiver_, on_handled, now);  // may drop the peer
  if (channel->must_read(path) && !std::ranges::count(with_records_, key))
    with_records_.push_back(key);
  if (channel->must_acknowledge()) unacknowledged_.push_back(key);
  wake_at(channel->due());
  return any;
}

// ---- Progress

// Costs no system call as long as nobody sends over this transport.
bool TcpTransport::progress() {
  if (!in_use_.load(std::memory_order_relaxed)) return false;
  dropped_.clear();
  const TimePoint now = Clock::now();
  bool any = false;
  // Records that were sent since the last progress() have carried most of them.
  send_acknowledgements(now);
  for (const uint64_t key : std::exchange(with_records_, {})) any |= read(key, now);
  for (const Epoll::Event& event : epoll_.wait(Duration(0))) any |= handle_event(event.key, now);
  // When an op has ended, its caller may leave before the next progress().
  if (!receiver_.takes_more()) send_acknowledgements(now);
  if (now >= timer_) run_timers(now);
  if (!any && !ended_.empty()) last_empty_ = now;
  return report_broken() || any;
}

void TcpTransport::send_acknowledgements(TimePoint now) {
  for (const uint64_t key : std::exchange(unacknowledged_, {}))
    if (TcpRecvChannel* channel = find_by_key(key); channel && channel->must_acknowledge()) {
      channel->acknowledge(now);
      wake_at(channel->due());
    }
}

bool TcpTransport::handle_event(uint64_t key, TimePoint now) {
  if (key == kWakeKey) {
    wake_.drain();
    adopt_accepted(now);
    return true;
  }
  if (key >= kFirstRecvKey) return read(key, now);
  Peer* peer = nullptr;
  {
    std::lock_guard lock(peers_mutex_);
    peer = by_key_[key / tcp::kMostPaths - 1];
  }
  const bool any = peer->channel.on_event(key % tcp::kMostPaths, now);
  update(*peer);
  return any;
}

void TcpTransport::run_timers(TimePoint now) {
  timer_ = TimePoint::max();
  for (Peer* peer : all_peers()) {
    peer->channel.tick(now);
    update(*peer);
  }
  for (const auto& [from, channel] : inbound_) {
    channel->tick(now);
    wake_at(channel->due());
  }
}

bool TcpTransport::report_broken() {
  if (newly_broken_.empty()) return false;
  for (Peer* peer : std::exchange(newly_broken_, {})) {
    peer->over = !peer->gone;
    receiver_.on_connection_lost(name(), peer->channel.peer(), peer->channel.broken());
  }
  return true;
}

bool TcpTransport::arm() {
  return newly_broken_.empty() && with_records_.empty() && unacknowledged_.empty();
}

std::optional<TimePoint> TcpTransport::due() const {
  if (timer_ == TimePoint::max()) return std::nullopt;
  return timer_;
}

// ---- Ends

// The connection of an ended process ends behind its last bytes. If the host has ended, no end
// comes: then it is enough that nothing was there to read for a while.
bool TcpTransport::drained(ContextId id) {
  const TcpRecvChannel* channel = find_inbound(id);
  const bool ended = channel && !channel->is_connected() && !channel->has_records();
  if (ended || !in_use_ || (!channel && !find(id))) {
    ended_.erase(id);
    return true;
  }
  const TimePoint now = Clock::now();
  const TimePoint since = ended_.try_emplace(id, now).first->second;
  if (last_empty_ < since + kLastBytesTime && now < since + kLongestDrain) return false;
  ended_.erase(id);
  return true;
}

void TcpTransport::drop_peer(ContextId id) {
  drop_inbound(id);
  Peer* peer = find(id);
  if (!peer) return;
  peer->gone = true;
  peer->over = false;
  peer->broken = true;
  peer->noticed = true;  // the caller needs no report
  peer->channel.close_with(Error(ErrorKind::kPeerLost, "the peer's process is gone"));
}

void TcpTransport::begin_flush() {
  for (Peer* peer : all_peers()) {
    peer->channel.begin_flush(Clock::now());
    update(*peer);
  }
}

bool TcpTransport::flushed() const {
  const TimePoint now = Clock::now();
  return std::ranges::all_of(all_peers(), [now](const Peer* peer) {
    return peer->channel.flushed() || now - peer->channel.silent_since() > kSilentFlush;
  });
}

void TcpTransport::close() {
  if (mark_.forked() || std::exchange(closed_, true)) return;
  port_->remove(own_.secret);
  for (Peer* peer : all_peers())
    peer->channel.close_with(Error(ErrorKind::kAborted, "the transport closed"));
  for (const auto& [from, channel] : inbound_) channel->close();
  epoll_.remove(wake_.get());
}

}  // namespace ringdist
