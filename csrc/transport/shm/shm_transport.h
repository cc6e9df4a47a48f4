// Transport `shm` connects the processes of one host through shared memory (segment_layout.h). A
// payload is copied once, into the sender's segment, and the receiver reduces straight out of it.
// So a message takes two passes over the bytes, and no system call while both sides are awake.
// Sockets are polled only once per kLookTime, after a sleep, or while a peer is to answer.
//
// A payload in a shared tensor (os/shared_block_registry.h) is not copied. The receiver reads it
// there, and the send ends when it has. A channel is opened at the first send (shm_hello.h).
//
// Published messages outlive their sender, because the receiver has mapped its memory. Threads: see
// Transport.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_annotations.h"
#include "os/epoll.h"
#include "transport/shm/recv_channel.h"
#include "transport/shm/send_channel.h"
#include "transport/transport.h"

namespace ringdist {

// Owns this Context's segment, the sending channels to its peers and the table of receiving ones.
class ShmTransport final : public Transport {
 public:
  // Creates the segment and listens for peers. Returns kSystem if memory or a descriptor is
  // missing. `receiver` must outlive the transport.
  static Result<std::unique_ptr<Transport>> create(const TransportConfig& config,
                                                   TransportDelegate& receiver);
  ~ShmTransport() override { close(); }

  std::string_view name() const override { return "shm"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override;
  Error add_peer(ContextId peer, ConstBytes address) override;
  bool reaches(ContextId peer) const override;
  void renew(ContextId peer) override;
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override;
  void revoke_payload(ContextId peer, SendId send_id) override;
  bool would_copy(ConstBytes payload) const override;
  std::optional<Bytes> reserve(size_t bytes) override;
  void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) override;
  bool progress() override;
  int event_fd() const override { return epoll_.get(); }
  bool arm() override;
  std::optional<TimePoint> due() const override;
  bool drained(ContextId peer) override;
  void drop_peer(ContextId peer) override;
  void begin_flush() override;
  bool flushed() const override;
  void close() override;

 private:
  // A peer that add_peer() has named, with the channel to it.
  struct Peer {
    Peer(shm::OwnShmSegment& own, shm::PeerDoorbells& bells, TransportDelegate& receiver,
         ContextId me, ContextId peer, const std::string& name, const TlsKey* tls_key)
        : address(name), link(own, bells, receiver, me, peer, name, tls_key) {}
    const std::string address;  // name of its AF_UNIX socket
    shm::SendChannel link;
    bool used = false;
    bool watched = false;  // its socket is in the epoll set
    bool noticed = false;  // it was found that the channel is broken
    bool closed = false;   // its process or transport has ended: no other channel follows
    // These flags may be used by any thread. `broken`: the channel is broken. `over`: that was
    // reported, so another channel may follow. `renewed`: the next send shall open one.
    std::atomic<bool> broken = false;
    std::atomic<bool> over = false;
    std::atomic<bool> renewed = false;
  };

  ShmTransport(const TransportConfig& config, TransportDelegate& receiver,
               std::unique_ptr<shm::OwnShmSegment> own, Epoll epoll);
  Peer* find(ContextId peer) const;
  // Returns the peer for a send, with its channel renewed if requested. Returns null if the peer is
  // not registered or the transport is closed.
  Peer* to_send_to(ContextId peer) const;
  // Updates the watching of the channel's socket, and the list of broken channels. Must follow each
  // call that may change the channel.
  void update(Peer& peer);
  void refuse(SendId send_id);
  // Polls the epoll set without blocking and handles its events.
  void poll_sockets(TimePoint now);
  void on_peer_closed(ContextId peer);
  // Reports broken channels once the messages of their peers have been delivered.
  bool report_broken();
  bool must_poll_sockets(TimePoint now) const;

  const ContextId me_;
  const size_t max_payload_;
  TransportDelegate& receiver_;
  const std::shared_ptr<const TlsKey> tls_key_;
  std::unique_ptr<shm::OwnShmSegment> own_;
  Epoll epoll_;  // the doorbell, the listener, handshakes and peers' doorbells
  shm::PeerDoorbells bells_;
  shm::RecvChannelTable inbound_;
  mutable std::mutex peers_mutex_;  // add_peer() is called by bootstrap threads
  std::map<ContextId, std::unique_ptr<Peer>> peers_ RINGDIST_GUARDED_BY(peers_mutex_);
  std::vector<Peer*> used_;  // peers with a send; needs no mutex
  std::vector<Peer*> newly_broken_;
  bool asleep_ = false;
  bool closed_ = false;
  TimePoint last_look_;
  ForkMark mark_;
};

// The entries of transport `shm` in the registry. It is viable if this process can create shared
// memory.
Error shm_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> shm_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
