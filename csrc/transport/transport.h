// A transport moves messages between Contexts. A message has a small header, which the transport
// does not interpret, and a payload of at most max_payload() bytes. Messages of one ordered pair of
// Contexts keep their order unless the transport documents otherwise; receivers match them by
// header in any case.
//
// Threads: name(), address(), add_peer(), reaches() and renew() may be called from any thread.
// Every other method requires the lane's progress lock, so that one thread at a time calls it,
// though not always the same one. No method blocks.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffers.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/payload.h"

namespace ringdist {

// Identifies a Context, over all processes and hosts.
using ContextId = uint64_t;

// The header buffers of all transports have this size. A larger header fails a check in send().
inline constexpr size_t kMaxHeaderBytes = 160;

// Receives the events of a transport. Its methods are called during progress(), send(), commit(),
// drop_peer() and close(), with the progress lock held.
class TransportDelegate {
 public:
  virtual ~TransportDelegate() = default;
  // Delivers a message of Context `from`, which is 0 if that is unknown. Both views end with the
  // call, so the delegate consumes them in place or copies them. The payload lies in memory of the
  // transport or of the sender, which may revoke it meanwhile: Payload::still_valid() must be
  // checked after reading.
  virtual void on_message(ContextId from, ConstBytes header, const Payload& payload) = 0;
  // Returns false if an op has ended, so that its caller continues before more messages are
  // handled. A transport that can leave messages where they are then delivers no more in this
  // progress().
  virtual bool takes_more() const { return true; }
  // Reports that a send has ended and its memory is free. Called once for each send with an id
  // other than kNoSendId, possibly before send() or commit() returns, and never after close() has
  // returned.
  virtual void on_sent(SendId send_id, const Error& error) = 0;
  // Reports the end of any send; does nothing for kNoSendId.
  void end_send(SendId send_id, const Error& error) {
    if (send_id != kNoSendId) on_sent(send_id, error);
  }
  // Reports that the connection to a peer broke. The engine decides if the peer is lost, because a
  // process that left in good order closes its connections too.
  virtual void on_connection_lost(std::string_view transport, ContextId peer,
                                  const Error& cause) = 0;
};

// One message of commit(). The header is copied during the call. With kNoSendId its end is not
// reported.
struct OutgoingMessage {
  ContextId peer;
  ConstBytes header;
  SendId send_id = kNoSendId;
};

// The interface of all transports. A process has one instance of each transport that it uses.
class Transport {
 public:
  virtual ~Transport() = default;

  // Returns the name of the transport's row in the registry.
  virtual std::string_view name() const = 0;
  // Returns the largest payload of one message, in bytes.
  virtual size_t max_payload() const = 0;

  // Returns the opaque bytes that a peer passes to add_peer() to reach this Context; the rendezvous
  // exchanges them. Any thread.
  virtual std::vector<std::byte> address() const = 0;
  // Stores the address of a peer. The connection is made at the first send. A second call for the
  // same peer keeps the address and acts as renew(). Returns kPeerLost if the address is empty but
  // this transport needs one. Any thread.
  virtual Error add_peer(ContextId peer, ConstBytes address) = 0;
  // Returns true if the peer was added and its connection is not broken. Any thread.
  virtual bool reaches(ContextId peer) const = 0;
  // Lets the next send to a living peer open a new connection, if the former one broke and that was
  // reported. Otherwise does nothing. Any thread.
  virtual void renew(ContextId) {}

  // Sends from the caller's memory, which must stay valid and unchanged until on_sent(). The header
  // is copied. Errors are reported by on_sent() only, for instance kPeerLost if the peer cannot be
  // reached.
  virtual void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) = 0;
  // Revokes the payload of a send that has not ended, so that the caller may change its memory. If
  // the header still arrives, its payload is marked as invalid, or has the former bytes. on_sent()
  // is called as usual, and the memory must not be freed before that. Does not throw.
  virtual void revoke_payload(ContextId, SendId) {}

  // Returns true if send() would first copy this payload into memory of the kind that reserve()
  // returns. A caller that is about to compute the payload then computes it there and uses
  // commit(). It is a hint: a wrong answer costs one copy at most.
  virtual bool would_copy(ConstBytes) const { return false; }
  // Reserves transport memory to write an outgoing message into. Returns nothing if all of it is in
  // use; try again after the next progress(). commit() sends the first `used` bytes to all of `to`,
  // each with its own header. Every reservation must be committed; an empty `to` returns the
  // memory.
  virtual std::optional<Bytes> reserve(size_t bytes) = 0;
  virtual void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) = 0;

  // Delivers messages that have arrived and completes sends. Returns true if anything happened.
  virtual bool progress() = 0;
  // Support for sleeping. event_fd() becomes readable when progress() has work; -1 if there is
  // none. arm() must be called before blocking on it and returns false if there is work already.
  // due() is the time at which progress() must be called even without an event.
  virtual int event_fd() const = 0;
  virtual bool arm() = 0;
  virtual std::optional<TimePoint> due() const { return std::nullopt; }

  // Returns true once everything that an ended peer process had sent, and that can still be read,
  // has been delivered. Otherwise call it again after progress().
  virtual bool drained(ContextId) { return true; }
  // Forgets a peer after its process has ended. Completes every send to it with an Error. If the
  // system may still read the memory of a send, that send completes later, at the latest in
  // close().
  virtual void drop_peer(ContextId peer) = 0;
  // Begins a flush: requests the peers to confirm what was sent to them until this call. A
  // completed send may still lie in the kernel, which drops it if this process ends with unread
  // input. The caller then calls progress() until flushed().
  virtual void begin_flush() = 0;
  // Returns true once every peer has confirmed, has broken, or has been silent for too long.
  virtual bool flushed() const = 0;
  // Completes every open send with an Error. Never blocks on a dead peer.
  virtual void close() = 0;
};

class DataPort;
class LocalNetwork;
class TlsKey;

// The settings of one transport instance. The local network connects Contexts of one process and is
// null outside of tests.
struct TransportConfig {
  ContextId context_id = 0;
  std::string interface_name;                        // network interface to use, "" for any
  size_t max_payload = 252 * 1024;                   // bytes
  bool system_ucx = false;                           // load the system's UCX instead of the wheel's
  Duration peer_timeout = std::chrono::seconds(10);  // transport `tcp` gives a peer up after it
  // "ip:port" for each network interface, the best first: where `data_port` gets its connections.
  std::vector<std::string> tcp_addresses;
  std::shared_ptr<DataPort> data_port;          // transport `tcp` only
  std::shared_ptr<const TlsKey> tls_key;        // the job's, or null
  std::shared_ptr<LocalNetwork> local_network;  // transport `local` only
};

}  // namespace ringdist
