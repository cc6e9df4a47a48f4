// Transport `shm`: between the processes of one host, through memory that they share
// (segment_layout.h). One copy into the sender's segment, and the receiver reduces straight out of
// it: two passes over the bytes, and a system call for none of them while both are awake. What lies
// in a shared tensor (os/shared_block_registry.h) is not copied: the receiver reads it there, and
// the send ends when it has. A link is made at the first send (shm_hello.h).
//
// What was published outlives its sender: the receiver has mapped its memory.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread_annotations.h"
#include "os/epoll.h"
#include "transport/shm/recv_channel.h"
#include "transport/shm/send_channel.h"
#include "transport/transport.h"

namespace ringdist {

class ShmTransport final : public Transport {
 public:
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
  struct Peer {
    Peer(shm::OwnShmSegment& own, shm::PeerDoorbells& bells, TransportDelegate& receiver,
         ContextId me, ContextId peer, std::string address)
        : link(own, bells, receiver, me, peer, std::move(address)) {}
    shm::SendChannel link;
    bool used = false;
    bool watched = false;  // its socket is in the epoll set
    bool noticed = false;  // the link is broken
    bool closed = false;   // its process: no other link follows
    // For any thread: the link is broken; that was reported, so another may follow; one shall.
    std::atomic<bool> broken = false;
    std::atomic<bool> over = false;
    std::atomic<bool> renewed = false;
  };

  ShmTransport(const TransportConfig& config, TransportDelegate& receiver,
               std::unique_ptr<shm::OwnShmSegment> own, Epoll epoll);
  Peer* find(ContextId peer) const;
  Peer* to_send_to(ContextId peer) const;
  void update(Peer& peer);
  void refuse(SendId send_id);
  void look_at_sockets(TimePoint now);
  void on_peer_closed(ContextId peer);
  bool report_broken();
  bool in_need_of_a_look(TimePoint now) const;

  const ContextId me_;
  const size_t max_payload_;
  TransportDelegate& receiver_;
  std::unique_ptr<shm::OwnShmSegment> own_;
  Epoll epoll_;  // the doorbell, the listener, connections that greet, peers' doorbells
  shm::PeerDoorbells bells_;
  shm::RecvChannelTable inbound_;
  mutable std::mutex peers_mutex_;  // add_peer() comes from set-up threads
  std::map<ContextId, std::unique_ptr<Peer>> peers_ RINGDIST_GUARDED_BY(peers_mutex_);
  std::vector<Peer*> used_;  // that were sent to: the lane's own list
  std::vector<Peer*> newly_broken_;
  bool asleep_ = false;
  bool closed_ = false;
  TimePoint last_look_;
  ForkMark mark_;
};

// What the registry needs of transport `shm`.
Error shm_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> shm_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
