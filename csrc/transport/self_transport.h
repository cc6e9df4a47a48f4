// Transport between the ranks of one Context. Messages go through a queue and reach the same
// delegate at the next progress(). It is not in the registry, because it reaches no other Context.
// Threads: see Transport.
#pragma once

#include <deque>

#include "transport/staging_pool.h"
#include "transport/transport.h"

namespace ringdist {

// Queues messages of a Context to itself. Payloads of send() stay in the caller's memory until they
// have been delivered; only headers are copied.
class SelfTransport final : public Transport {
 public:
  // `receiver` must outlive the transport.
  SelfTransport(ContextId self, size_t max_payload, TransportDelegate& receiver)
      : self_(self), receiver_(receiver), staging_(max_payload, 16), max_payload_(max_payload) {}

  std::string_view name() const override { return "self"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override { return {}; }
  Error add_peer(ContextId, ConstBytes) override { return {}; }
  bool reaches(ContextId peer) const override { return peer == self_; }
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override;
  std::optional<Bytes> reserve(size_t bytes) override { return staging_.take(bytes); }
  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override;
  bool progress() override;
  int event_fd() const override { return -1; }
  bool arm() override { return queue_.empty(); }
  void drop_peer(ContextId) override {}
  void begin_flush() override {}
  bool flushed() const override { return true; }
  void close() override;

 private:
  struct QueuedMessage {
    std::vector<std::byte> header;
    ConstBytes payload;
    SendId send_id;
    const std::byte* staged = nullptr;  // the reservation that holds the payload, or null
  };
  // Appends a message. `to.peer` must be this Context.
  void enqueue(const OutgoingMessage& to, ConstBytes payload, const std::byte* staged);
  // Releases the staged payload, if there is one, and reports the end of the send.
  void end(const QueuedMessage& parcel, const Error& error);

  const ContextId self_;
  TransportDelegate& receiver_;
  StagingPool staging_;
  const size_t max_payload_;
  std::deque<QueuedMessage> queue_;
};

}  // namespace ringdist
