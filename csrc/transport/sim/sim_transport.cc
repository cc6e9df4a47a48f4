#include "transport/sim/sim_transport.h"

#include <utility>

#include "base/check.h"
#include "transport/sim/sim.h"

namespace ringdist {
namespace {

constexpr size_t kStagingBuffers = 16;
constexpr int kNoEvent = -1;

}  // namespace

SimTransport::SimTransport(const TransportConfig& config, TransportDelegate& receiver, int event_fd)
    : id_(config.context_id),
      max_payload_(config.max_payload),
      network_(config.sim_network),
      receiver_(receiver),
      event_fd_(event_fd),
      staging_(max_payload_, kStagingBuffers) {}

Result<std::unique_ptr<SimTransport>> SimTransport::create(const TransportConfig& config,
                                                           TransportDelegate& receiver,
                                                           bool event_fd) {
  std::optional<EventFd> event;
  if (event_fd) {
    auto made = EventFd::create();
    if (!made.ok()) return made.error();
    event.emplace(std::move(made.value()));
  }
  const int descriptor = event ? event->get() : kNoEvent;
  if (Error error = config.sim_network->open(config.context_id, std::move(event))) return error;
  return std::unique_ptr<SimTransport>(new SimTransport(config, receiver, descriptor));
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
        receiver_.on_message(news->header, news->payload);
        break;
      case SimEvent::Kind::kSent:
        receiver_.on_sent(news->send_id, news->error);
        break;
      case SimEvent::Kind::kLost:
        receiver_.on_peer_lost(name(), news->peer, news->error);
        break;
    }
    if (!receiver_.takes_more()) break;
  }
  return any;
}

void SimTransport::close() {
  for (const SimEvent& news : network_->close(id_)) receiver_.on_sent(news.send_id, news.error);
}

Error sim_viable(const TransportConfig& config) {
  if (config.sim_network) return {};
  return {ErrorKind::kNotSupported, "a simulation of threads of one process: for tests"};
}

Result<std::unique_ptr<Transport>> sim_create(const TransportConfig& config,
                                              TransportDelegate& receiver) {
  if (Error error = sim_viable(config)) return error;
  auto made = SimTransport::create(config, receiver, /*event_fd=*/true);
  if (!made.ok()) return made.error();
  return std::unique_ptr<Transport>(std::move(made.value()));
}

}  // namespace ringdist
