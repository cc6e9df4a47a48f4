// Transport `tcp` connects processes by TCP. Each direction of a pair has connections of its own,
// one for each pair of network interfaces, which the sender dials. Connections arrive at the
// listening port of the control plane (data_port.h), so a process has one port. A connection that
// breaks while both processes live is dialed again, and nothing is lost (tcp_send_channel.h).
//
// Large payloads are written from the caller's memory; their sends end when the peer has handled
// them. The receiver reduces out of the buffer into which it has read.
//
// Threads: see Transport.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/thread_annotations.h"
#include "os/epoll.h"
#include "os/fork_guard.h"
#include "transport/staging_pool.h"
#include "transport/tcp/data_port.h"
#include "transport/tcp/tcp_recv_channel.h"
#include "transport/tcp/tcp_send_channel.h"
#include "transport/transport.h"

namespace ringdist {

// Owns the sending channels to the peers of a Context, and the receiving ones from them.
class TcpTransport final : public Transport {
 public:
  // Registers at TransportConfig::data_port. `receiver` must outlive the transport. Error: kSystem.
  static Result<std::unique_ptr<Transport>> create(const TransportConfig& config,
                                                   TransportDelegate& receiver);
  ~TcpTransport() override { close(); }

  std::string_view name() const override { return "tcp"; }
  size_t max_payload() const override { return max_payload_; }
  std::vector<std::byte> address() const override { return own_.encode(); }
  Error add_peer(ContextId peer, ConstBytes address) override;
  bool reaches(ContextId peer) const override;
  void renew(ContextId peer) override;
  void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) override;
  void revoke_payload(ContextId peer, SendId send_id) override;
  std::optional<Bytes> reserve(size_t bytes) override { return staging_.take(bytes); }
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
    Peer(TcpTransport& own, ContextId id, tcp::DataAddress address, uint64_t key)
        : channel(own.me_, id, std::move(address), own.own_ips_, own.peer_timeout_, own.receiver_,
                  own.staging_, own.epoll_, key, own.tls_key_.get()) {}
    tcp::TcpSendChannel channel;
    bool noticed = false;  // it was found that the channel is broken
    bool gone = false;     // its process has ended: no other channel follows
    // These flags may be used by any thread. `broken`: the channel is broken. `over`: that was
    // reported, so another channel may follow. `renewed`: the next send shall open one.
    std::atomic<bool> broken = false;
    std::atomic<bool> over = false;
    std::atomic<bool> renewed = false;
  };

  TcpTransport(const TransportConfig& config, TransportDelegate& receiver, Epoll epoll,
               EventFd wake);
  Peer* find(ContextId peer) const;
  // Returns all peers. Callbacks run without the lock, so callers iterate over a copy.
  std::vector<Peer*> all_peers() const;
  // Returns the receiving channel from a process, or the one with a connection of that key, or
  // null.
  tcp::TcpRecvChannel* find_inbound(ContextId from) const;
  tcp::TcpRecvChannel* find_by_key(uint64_t key) const;
  // Closes the receiving channel from a process, if there is one.
  void drop_inbound(ContextId from);
  // Sends a message to a peer, or ends the send with an error.
  void send_to(ContextId peer, ConstBytes header, const tcp::OutgoingRecord& record);
  // Updates the flags of a peer and the timer. Must follow each call that may change its channel.
  void update(Peer& peer);
  // Takes over the connections that the control plane has accepted.
  void adopt_accepted(TimePoint now);
  void adopt(Stream socket, const DataHello& hello, TimePoint now);
  // Reads the connection with that key, if its channel exists. Returns true if anything was
  // delivered.
  bool read(uint64_t key, TimePoint now);
  // Sends the acknowledgements that no record has carried.
  void send_acknowledgements(TimePoint now);
  // Handles an event of the epoll set. Returns true if anything happened.
  bool handle_event(uint64_t key, TimePoint now);
  void run_timers(TimePoint now);
  bool report_broken();
  void wake_at(std::optional<TimePoint> time);

  const ContextId me_;
  const size_t max_payload_;
  const Duration peer_timeout_;
  const std::shared_ptr<DataPort> port_;
  const std::shared_ptr<const TlsKey> tls_key_;
  TransportDelegate& receiver_;
  StagingPool staging_;
  const tcp::DataAddress own_;
  const std::vector<std::string> own_ips_;
  Epoll epoll_;
  const EventFd wake_;
  std::atomic<bool> in_use_ = false;  // a message was sent, or a connection has come
  std::mutex accepted_mutex_;         // a leaf: the control thread adds connections
  std::vector<std::pair<Stream, DataHello>> accepted_ RINGDIST_GUARDED_BY(accepted_mutex_);
  mutable std::mutex peers_mutex_;  // a leaf: bootstrap threads add peers
  std::map<ContextId, std::unique_ptr<Peer>> peers_ RINGDIST_GUARDED_BY(peers_mutex_);
  std::vector<Peer*> by_key_ RINGDIST_GUARDED_BY(peers_mutex_);  // in the order of their keys
  std::vector<Peer*> newly_broken_;
  std::map<ContextId, std::unique_ptr<tcp::TcpRecvChannel>> inbound_;
  std::map<uint64_t, tcp::TcpRecvChannel*> by_recv_key_;       // by its first key
  std::vector<std::unique_ptr<tcp::TcpRecvChannel>> dropped_;  // destroyed by the next progress()
  uint64_t next_recv_key_;
  std::vector<uint64_t> with_records_;    // keys of connections with waiting records
  std::vector<uint64_t> unacknowledged_;  // keys of channels that must acknowledge
  TimePoint timer_ = TimePoint::max();    // progress() must run timers at this time, or before
  std::map<ContextId, TimePoint> ended_;  // time of the first drained() call, by peer
  TimePoint last_empty_;                  // time of the last progress() that found nothing
  bool closed_ = false;
  ForkMark mark_;
};

// The entries of transport `tcp` in the registry. It is viable everywhere; tcp_create() needs
// TransportConfig::data_port.
Error tcp_viable(const TransportConfig& config);
Result<std::unique_ptr<Transport>> tcp_create(const TransportConfig& config,
                                              TransportDelegate& receiver);

}  // namespace ringdist
