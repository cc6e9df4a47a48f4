// A Transport moves messages between Contexts. A message is a small header (opaque here) and a
// payload of at most max_payload() bytes. Messages of one ordered pair of Contexts may overtake
// each other only where a transport says so; receivers match them by their header in any case.
//
// Threads: name(), address(), add_peer() and reaches() may be called from any; every other method
// with the lane's driver token held, by one thread at a time (not always the same one). No method
// blocks.
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

using ContextId = uint64_t;

inline constexpr size_t kMaxHeaderBytes = 160;

enum class MemoryKind : uint8_t { kHost, kCuda };

// What a transport calls, while it progresses and on a send.
class TransportDelegate {
 public:
  virtual ~TransportDelegate() = default;
  // Both views end with the call: consume in place, or copy. Those of the payload lie in memory of
  // the transport, or of a sender, who may have taken it back meanwhile.
  virtual void on_message(ConstBytes header, const Payload& payload) = 0;
  // False: an op has ended, and its caller goes first. A transport that keeps messages where they
  // are delivers no more in this progress().
  virtual bool takes_more() const { return true; }
  // A send has ended: its memory is free. Once for each but those with kNoTicket, possibly before
  // send() or commit() returns, never after close() returned.
  virtual void on_sent(SendId send_id, const Error& error) = 0;
  // The same, of any send: nobody is told of one without a ticket.
  void end_send(SendId send_id, const Error& error) {
    if (send_id != kNoSendId) on_sent(send_id, error);
  }
  // The connection to a peer broke. The engine decides whether that is a death: a process that left
  // in good order closes connections too.
  virtual void on_peer_lost(std::string_view transport, ContextId peer, const Error& cause) = 0;
};

struct OutgoingMessage {
  ContextId peer;
  ConstBytes header;
  SendId send_id = kNoSendId;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual std::string_view name() const = 0;
  virtual std::vector<MemoryKind> memory_kinds() const { return {MemoryKind::kHost}; }
  virtual size_t max_payload() const = 0;

  // What a peer needs to reach this Context: opaque bytes for the rendezvous. Any thread.
  virtual std::vector<std::byte> address() const = 0;
  // Remembers a peer's address; connects on the first send. Any thread. A second call renews.
  virtual Error add_peer(ContextId peer, ConstBytes address) = 0;
  virtual bool reaches(ContextId peer) const = 0;
  // If the connection to a living peer has broken, and that was reported, the next send makes
  // another. Any thread.
  virtual void renew(ContextId) {}

  // Sends from the caller's memory, which stays valid and unchanged until on_sent(). The header is
  // copied.
  virtual void send(ContextId peer, ConstBytes header, ConstBytes payload, SendId send_id) = 0;
  // The memory of this send, if it has not ended, may change from here on: where its header still
  // arrives, it does with a payload that says so. The ticket comes home as ever, and keeps the
  // memory until then. Throws nothing.
  virtual void revoke_payload(ContextId, SendId) {}

  // send() of this would first copy it into memory as reserve() gives.
  virtual bool would_copy(ConstBytes) const { return false; }
  // A span of the transport's own memory to write an outgoing message into, or nothing yet (try
  // again after the next progress()). commit() sends its first `used` bytes to all of `to`;
  // every reservation must be committed (an empty `to` gives it back).
  virtual std::optional<Bytes> reserve(size_t bytes) = 0;
  virtual void commit(Bytes reserved, size_t used, std::span<const OutgoingMessage> to) = 0;

  // Delivers what arrived, completes what is done. Returns whether anything happened.
  virtual bool progress() = 0;
  // For sleeping: a descriptor that becomes readable when progress() has work. arm() returns false
  // if there is work already. due() is when progress() must be called even without an event.
  virtual int event_fd() const = 0;
  virtual bool arm() = 0;
  virtual std::optional<TimePoint> due() const { return std::nullopt; }

  // The peer's process has ended. True once all that it had sent and that can still be read has
  // been delivered; ask again after progress().
  virtual bool drained(ContextId) { return true; }
  // The peer's process is gone: completes every send to it with an Error and forgets it.
  virtual void drop_peer(ContextId peer) = 0;
  // A send that is done may still lie in the kernel, which drops it if this process ends with
  // something unread. So ask the peers to confirm what was sent to them until now; then progress()
  // until all who answer have.
  virtual void begin_flush() = 0;
  virtual bool flushed() const = 0;
  // Completes every send with an Error. Never blocks on a dead peer.
  virtual void close() = 0;
};

class LocalNetwork;
class SimNetwork;

struct TransportConfig {
  ContextId context_id = 0;
  std::string interface_name;  // network interface to use, "" for any
  size_t max_payload = 252 * 1024;
  bool system_ucx = false;
  std::shared_ptr<LocalNetwork> local_network;  // transport `local` only
  std::shared_ptr<SimNetwork> sim_network;      // transport `sim` only
};

}  // namespace ringdist
