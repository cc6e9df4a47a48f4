// Transport of tests that connects Contexts of one process over a computed network
// (simulate/network_model.h). The network has a virtual clock, costs per kind of link, and faults.
// Payloads are copied when they are sent, so the
// caller's memory is not read later. Threads: see Transport.
#pragma once

#include <memory>

#include "support/sim/sim_network.h"
#include "transport/staging_pool.h"

namespace ringdist {

// Forwards calls to the SimNetwork and its events to the delegate.
class SimTransport final : public Transport {
 public:
  // Joins `network`. If `event_fd` is true, creates a descriptor to sleep on.
  // Otherwise event_fd() is -1. Returns kSystem if no descriptor is left, or an error of
  // SimNetwork::open(). `receiver` must outlive the transport.
  static Result<std::unique_ptr<SimTransport>> create(const TransportConfig& config,
                                                      std::shared_ptr<SimNetwork> network,
                                                      TransportDelegate& receiver, bool event_fd);
  ~SimTransport() override { close(); }
  SimTransport(const SimTransport&) = delete;
  SimTransport& operator=(const SimTransport&) = delete;

  std::string_view name() const override { return "sim"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId peer) const override { return network_->reaches(id_, peer); }
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override;
  std::optional<Bytes> reserve(size_t bytes) override { return staging_.take(bytes); }
  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override;
  bool progress() override;
  int event_fd() const override { return event_fd_; }
  bool arm() override { return network_->quiet(id_); }
  bool drained(ContextId peer) override { return !network_->holds_any(peer, id_); }
  void drop_peer(ContextId peer) override { network_->drop(id_, peer); }
  void begin_flush() override {}
  bool flushed() const override { return network_->all_taken(id_); }
  void close() override;

 private:
  SimTransport(const TransportConfig& config, std::shared_ptr<SimNetwork> network,
               TransportDelegate& receiver, int event_fd);

  const ContextId id_;
  const size_t max_payload_;
  const std::shared_ptr<SimNetwork> network_;
  TransportDelegate& receiver_;
  const int event_fd_;
  StagingPool staging_;
};

}  // namespace ringdist
