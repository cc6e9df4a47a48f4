#include "transport/ucx/ucx_transport.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "transport/ucx/ucx_worker.h"

namespace ringdist {
namespace {

// Ids of the active messages: a message, a flush request, and its confirmation.
constexpr unsigned kMessageId = 1;
constexpr unsigned kFlushRequestId = 2;
constexpr unsigned kReceiptId = 3;
constexpr size_t kStagingBuffers = 64;
// The time that close() waits for UCX to close endpoints.
constexpr auto kCloseTime = std::chrono::milliseconds(200);
// drained() waits this much longer, because a notice of an end may come before the last bytes.
constexpr auto kLateTime = std::chrono::milliseconds(50);
// drained() waits no longer than this for an idle progress(), because other peers may send all the
// time.
constexpr auto kReadTime = std::chrono::milliseconds(500);
// A flush does not wait for a peer that confirms nothing for this long.
constexpr auto kSilence = std::chrono::seconds(2);

}  // namespace

UcxTransport::UcxTransport(const TransportConfig& config, TransportDelegate& receiver)
    : max_payload_(config.max_payload),
      receiver_(receiver),
      staging_(config.max_payload, kStagingBuffers) {}

Result<std::unique_ptr<Transport>> UcxTransport::create(const TransportConfig& config,
                                                        TransportDelegate& receiver) {
  std::unique_ptr<UcxTransport> out(new UcxTransport(config, receiver));
  auto worker = UcxWorker::open(config);
  if (!worker.ok()) return worker.error();
  out->worker_ = std::move(worker.value());
  if (Error error = out->install_handler(kMessageId, &on_message)) return error;
  if (Error error = out->install_handler(kFlushRequestId, &on_flush_request)) return error;
  if (Error error = out->install_handler(kReceiptId, &on_receipt)) return error;
  return std::unique_ptr<Transport>(std::move(out));
}

UcxTransport::~UcxTransport() { close(); }

Error UcxTransport::install_handler(unsigned id, ucp_am_recv_callback_t callback) {
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = id;
  param.cb = callback;
  param.arg = this;
  return ucx_error("installing the message handler",
                   ucp_worker_set_am_recv_handler(worker_->handle(), &param));
}

Error UcxTransport::add_peer(ContextId peer, ConstBytes address) {
  if (address.empty()) return Error(ErrorKind::kPeerLost, "the peer published no UCX address");
  renew(peer);
  std::lock_guard lock(peers_mutex_);
  auto& slot = peers_[peer];
  if (slot) return {};
  slot = std::make_unique<Peer>();
  slot->transport = this;
  slot->id = peer;
  slot->address.assign(address.begin(), address.end());
  return {};
}

// The cause that broke the connection may be gone, so the next send connects again.
void UcxTransport::renew(ContextId id) {
  std::lock_guard lock(peers_mutex_);
  const auto it = peers_.find(id);
  if (it == peers_.end() || it->second->gone) return;
  if (std::exchange(it->second->over, false)) it->second->broken = {};
}

bool UcxTransport::reaches(ContextId peer) const {
  std::lock_guard lock(peers_mutex_);
  auto it = peers_.find(peer);
  return it != peers_.end() && !it->second->broken;
}

Result<ucp_ep_h> UcxTransport::endpoint(ContextId id) {
  Peer* peer = nullptr;
  {
    std::lock_guard lock(peers_mutex_);
    auto it = peers_.find(id);
    if (it == peers_.end()) return Error(ErrorKind::kPeerLost, "no address of this peer is known");
    peer = it->second.get();
    if (peer->broken) return peer->broken;
  }
  if (!peer->endpoint)
    if (Error error = connect(*peer)) return error;
  return peer->endpoint;
}

Error UcxTransport::connect(Peer& peer) {
  peer.confirmed = peer.asked;  // flush requests over a former endpoint are never confirmed
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.address = reinterpret_cast<const ucp_address_t*>(peer.address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = &UcxTransport::on_endpoint_error;
  params.err_handler.arg = &peer;
  return ucx_error("connecting", ucp_ep_create(worker_->handle(), &params, &peer.endpoint));
}

UcxTransport::Request* UcxTransport::take_request(ConstBytes header) {
  check(header.size() <= kMaxHeaderBytes, "message header too large");
  if (free_requests_.empty()) {
    requests_.push_back(std::make_unique<Request>());
    requests_.back()->transport = this;
    free_requests_.push_back(requests_.back().get());
  }
  Request* request = free_requests_.back();
  free_requests_.pop_back();
  request->in_use = true;
  std::copy(header.begin(), header.end(), request->header.begin());
  return request;
}

void UcxTransport::finish(Request* request, const Error& error) {
  request->in_use = false;
  free_requests_.push_back(request);
  end(request->send_id, request->staged, error);
}

void UcxTransport::end(SendId send_id, const std::byte* staged, const Error& error) {
  if (staged != nullptr) staging_.release(staged);
  receiver_.end_send(send_id, error);
}

void UcxTransport::send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) {
  check(payload.size() <= max_payload_, "message payload too large");
  send_from({peer, header, send_id}, payload, nullptr);
}

void UcxTransport::send_from(const OutgoingMessage& to, ConstBytes payload,
                             const std::byte* staged) {
  auto ep = endpoint(to.peer);
  if (!ep.ok()) return end(to.send_id, staged, ep.error());
  post(ep.value(), kMessageId, 0, to.header, payload, to.send_id, staged);
}

void UcxTransport::post(ucp_ep_h endpoint, unsigned id, unsigned flags, ConstBytes header,
                        ConstBytes payload, SendId send_id, const std::byte* staged) {
  Request* request = take_request(header);
  request->send_id = send_id;
  request->endpoint = endpoint;
  request->staged = staged;
  ucp_request_param_t param{};
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = &UcxTransport::on_sent;
  param.user_data = request;
  param.flags = UCP_AM_SEND_FLAG_EAGER | flags;
  void* status = ucp_am_send_nbx(endpoint, id, request->header.data(), header.size(),
                                 payload.data(), payload.size(), &param);
  if (UCS_PTR_IS_PTR(status)) return;  // on_sent() will be called
  finish(request, ucx_error("sending", UCS_PTR_STATUS(status)));
}

void UcxTransport::on_sent(void* ucx_request, ucs_status_t status, void* user_data) {
  ucp_request_free(ucx_request);
  auto* request = static_cast<Request*>(user_data);
  request->transport->finish(request, ucx_error("sending", status));
}

void UcxTransport::commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) {
  for (const OutgoingMessage& out : to) {
    staging_.hold(reserved.data());
    send_from(out, reserved.first(used), reserved.data());
  }
  staging_.release(reserved.data());
}

ucs_status_t UcxTransport::on_message(void* arg, const void* header, size_t header_length,
                                      void* data, size_t length, const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxTransport*>(arg);
  // This transport sends eagerly only. A rendezvous message comes from a foreign sender and is
  // dropped.
  if (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) return UCS_OK;
  if (length > self->max_payload_) return UCS_OK;  // peers send no larger ones
  // UCX does not report the sender of a message.
  self->receiver_.on_message(/*from=*/0, {static_cast<const std::byte*>(header), header_length},
                             ConstBytes{static_cast<const std::byte*>(data), length});
  return UCS_OK;
}

void UcxTransport::on_endpoint_error(void* arg, ucp_ep_h, ucs_status_t status) {
  auto* peer = static_cast<Peer*>(arg);
  if (!peer->gone) {
    if (peer->broken) return;
    std::lock_guard lock(peer->transport->peers_mutex_);  // reaches() reads it on other threads
    peer->broken = ucx_error("the connection broke", status);
  }
  peer->transport->to_close_.push_back(peer);
}

bool UcxTransport::progress() {
  // Runs one iteration only. The dispatcher sends between iterations, which keeps both directions
  // busy.
  const bool any = ucp_worker_progress(worker_->handle()) != 0;
  if (!any && !ended_.empty()) last_empty_ = Clock::now();
  return handle_broken() || any;
}

// Closes endpoints here, because UCX does not allow that in its callback.
bool UcxTransport::handle_broken() {
  if (to_close_.empty()) return false;
  while (!to_close_.empty()) {
    Peer* peer = to_close_.front();
    to_close_.pop_front();
    close_endpoint(*peer);
    if (peer->gone) continue;
    Error cause;
    {
      std::lock_guard lock(peers_mutex_);
      cause = peer->broken;
      peer->over = true;
    }
    receiver_.on_connection_lost(name(), peer->id, cause);
  }
  return true;
}

void UcxTransport::close_endpoint(Peer& peer) {
  if (!peer.endpoint) return;
  ucp_request_param_t param{};  // NULL parameters crash UCX
  param.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = [](void* request, ucs_status_t, void* self) {
    ucp_request_free(request);
    --static_cast<UcxTransport*>(self)->closing_endpoints_;
  };
  param.user_data = this;
  void* status = ucp_ep_close_nbx(std::exchange(peer.endpoint, nullptr), &param);
  if (UCS_PTR_IS_PTR(status)) ++closing_endpoints_;
}

bool UcxTransport::arm() {
  if (!to_close_.empty()) return false;
  return ucp_worker_arm(worker_->handle()) == UCS_OK;
}

// Everything in this host's socket buffers has been read when progress() finds nothing. A notice of
// an end on another host may arrive a little before the last bytes, so this waits kLateTime more.
bool UcxTransport::drained(ContextId id) {
  {
    std::lock_guard lock(peers_mutex_);
    if (!peers_.contains(id)) return true;
  }
  const TimePoint since = ended_.try_emplace(id, Clock::now()).first->second;
  if (last_empty_ < since + kLateTime && Clock::now() < since + kReadTime) return false;
  ended_.erase(id);
  return true;
}

void UcxTransport::drop_peer(ContextId id) {
  Peer* peer = nullptr;
  bool was_broken = false;
  {
    std::lock_guard lock(peers_mutex_);
    auto it = peers_.find(id);
    if (it == peers_.end()) return;
    peer = it->second.get();
    peer->gone = true;
    was_broken = static_cast<bool>(peer->broken);
    if (!was_broken) peer->broken = Error(ErrorKind::kPeerLost, "the peer's process is gone");
  }
  if (was_broken)
    close_endpoint(*peer);
  else
    close_after_flush(*peer);
}

// UCX 1.22 can crash after an endpoint was closed while its socket took no more data. That happens
// if the socket becomes writable just when UCX reads that the peer has closed its endpoint, too:
// uct_tcp_iface_handle_events() frees the endpoint and then uses it. The link to a host that was
// cut off works again in that moment.
void UcxTransport::close_after_flush(Peer& peer) {
  if (!peer.endpoint) return;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = [](void* request, ucs_status_t, void* flushed) {
    ucp_request_free(request);
    auto* const its = static_cast<Peer*>(flushed);
    its->transport->to_close_.push_back(its);
  };
  param.user_data = &peer;
  if (!UCS_PTR_IS_PTR(ucp_ep_flush_nbx(peer.endpoint, &param))) return close_endpoint(peer);
  // Its messages must not keep buffers that other peers need.
  for (const auto& request : requests_)
    if (request->in_use && request->staged != nullptr && request->endpoint == peer.endpoint)
      staging_.add_buffer();
}

// The silence of a peer is measured from the first request that it has not confirmed, or from its
// latest confirmation.
void UcxTransport::begin_flush() {
  std::vector<Peer*> connected;
  {
    std::lock_guard lock(peers_mutex_);
    for (auto& [id, peer] : peers_)
      if (peer->endpoint && !peer->broken) connected.push_back(peer.get());
  }
  for (Peer* peer : connected) {
    if (peer->confirmed == peer->asked) peer->silent_since = Clock::now();
    send_flush(peer->endpoint, kFlushRequestId, {peer->id, ++peer->asked});
  }
}

bool UcxTransport::flushed() const {
  std::lock_guard lock(peers_mutex_);
  const TimePoint now = Clock::now();
  return std::all_of(peers_.begin(), peers_.end(), [now](const auto& entry) {
    const Peer& peer = *entry.second;
    return peer.broken || peer.confirmed >= peer.asked || now - peer.silent_since > kSilence;
  });
}

// Sends a flush request or its confirmation behind everything that was sent on the connection
// before. If it cannot be sent, the connection breaks.
void UcxTransport::send_flush(ucp_ep_h endpoint, unsigned id, const FlushRequest& flush) {
  const unsigned flags = id == kFlushRequestId ? UCP_AM_SEND_FLAG_REPLY : 0;
  post(endpoint, id, flags, std::as_bytes(std::span(&flush, 1)), {}, kNoSendId, nullptr);
}

ucs_status_t UcxTransport::on_flush_request(void* arg, const void* header, size_t header_length,
                                            void*, size_t, const ucp_am_recv_param_t* param) {
  auto* self = static_cast<UcxTransport*>(arg);
  FlushRequest flush;
  if (header_length != sizeof flush || !(param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP))
    return UCS_OK;  // not from this transport
  std::memcpy(&flush, header, sizeof flush);
  self->send_flush(param->reply_ep, kReceiptId, flush);
  return UCS_OK;
}

// A confirmation covers all earlier requests, so the number never falls.
ucs_status_t UcxTransport::on_receipt(void* arg, const void* header, size_t header_length, void*,
                                      size_t, const ucp_am_recv_param_t*) {
  auto* self = static_cast<UcxTransport*>(arg);
  FlushRequest flush;
  if (header_length != sizeof flush) return UCS_OK;
  std::memcpy(&flush, header, sizeof flush);
  std::lock_guard lock(self->peers_mutex_);
  if (auto it = self->peers_.find(flush.peer); it != self->peers_.end()) {
    it->second->confirmed = std::max(it->second->confirmed, flush.number);
    it->second->silent_since = Clock::now();
  }
  return UCS_OK;
}

// The worker is destroyed before the remaining sends are reported. After on_sent() their memory may
// be freed, and UCX must not read it then.
void UcxTransport::close() {
  if (!worker_ || worker_->forked()) return;
  std::vector<Peer*> all;
  {
    std::lock_guard lock(peers_mutex_);
    for (auto& [id, peer] : peers_) all.push_back(peer.get());
  }
  for (Peer* peer : all)
    if (!peer->gone) close_endpoint(*peer);
  const TimePoint deadline = Clock::now() + kCloseTime;
  auto busy = [&] { return closing_endpoints_ > 0 || free_requests_.size() < requests_.size(); };
  while (busy() && Clock::now() < deadline) ucp_worker_progress(worker_->handle());
  worker_.reset();
  for (auto& request : requests_)
    if (std::exchange(request->in_use, false))
      end(request->send_id, request->staged, Error(ErrorKind::kAborted, "the transport closed"));
}

}  // namespace ringdist
