#include "support/sim/sim_transport.h"

#include <utility>

#include "base/check.h"

namespace ringdist {
namespace {

constexpr size_t kStagingBuffers = 16;
constexpr int kNoEvent = -1;

}  // namespace

SimTransport::SimTransport(const TransportConfig& config, std::shared_ptr<SimNetwork> network,
                           TransportDelegate& receiver, int event_fd)
    : id_(config.context_id),
      max_payload_(config.max_payload),
      network_(std::move(network)),
      receiver_(receiver),
      event_fd_(event_fd),
      staging_(max_payload_, kStagingBuffers) {}

Result<std::unique_ptr<SimTransport>> SimTransport::create(const TransportConfig& config,
                                                           std::shared_ptr<SimNetwork> network,
                                                           TransportDelegate& receiver,
                                                           bool event_fd) {
  std::optional<EventFd> event;
  if (event_fd) {
    auto made = EventFd::create();
    if (!made.ok()) return made.error();
    event.emplace(std::move(made.value()));
  }
  const int descriptor = event ? event->get() : kNoEvent;
  if (Error error = network->open(config.context_id, std::move(event))) return error;
  return std::unique_ptr<SimTransport>(
      new SimTransport(config, std::move(network), receiver, descriptor));
}

void SimTransport::send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) {
  check(header.size() <= kMaxHeaderBytes && payload.size() <= max_payload_, "message too large");
  network_->send(id_, {peer, header, send_id}, payload, /*written=*/false);
}

// Sends one reservation to all. The first message pays for writing the payload. The others need no
// copy inside a host; between hosts SimNetwork charges a copy for each, as a socket does.
void SimTransport::commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) {
  for (const OutgoingMessage& out : to)
    network_->send(id_, out, reserved.first(used), /*written=*/&out != to.data());
  staging_.release(reserved.data());
}

bool SimTransport::progress() {
  bool any = false;
  while (auto news = network_->take(id_, /*moves=*/!any)) {
    any = true;
    switch (news->kind) {
      case SimEvent::Kind::kMessage:
        receiver_.on_message(news->peer, news->header, news->payload);
        break;
      case SimEvent::Kind::kSent:
        receiver_.on_sent(news->send_id, news->error);
        break;
      case SimEvent::Kind::kLost:
        receiver_.on_connection_lost(name(), news->peer, news->error);
        break;
    }
    if (!receiver_.takes_more()) break;
  }
  return any;
}

void SimTransport::close() {
  for (const SimEvent& news : network_->close(id_)) receiver_.on_sent(news.send_id, news.error);
}

}  // namespace ringdist
