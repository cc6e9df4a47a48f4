// The sending half of a channel from this Context to one peer of its host. Messages go into the
// channel's ring at once if there is room, otherwise they wait in a queue here. Requires the lane's
// progress lock.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/shm/block_exports.h"
#include "transport/shm/key_proof.h"
#include "transport/shm/own_shm_segment.h"
#include "transport/shm/peer_doorbells.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

// Dials at the first send, writes messages into the ring, and reclaims their memory once the peer
// has consumed them.
class SendChannel {
 public:
  // A channel is idle until the first send. It dials while it has no connection and greets while it
  // waits for the answer to its hello. It is broken while the peer may still read after the end,
  // and over when the peer reads no more.
  enum class State { kIdle, kDialing, kGreeting, kOpen, kBroken, kOver };

  // `receiver` is notified when sends end. With `tls_key`, the peer must prove that it has the key.
  SendChannel(OwnShmSegment& own, PeerDoorbells& bells, TransportDelegate& receiver, ContextId me,
              ContextId peer, std::string address, const TlsKey* tls_key)
      : own_(own),
        bells_(bells),
        receiver_(receiver),
        me_(me),
        peer_(peer),
        address_(std::move(address)),
        tls_key_(tls_key),
        exports_(address_, me, peer, tls_key) {}
  SendChannel(const SendChannel&) = delete;

  ContextId peer() const { return peer_; }
  State state() const { return state_; }
  // Returns true if an answer on the socket is expected soon, so that polling it pays off.
  bool expects_message(TimePoint now) const {
    return state_ == State::kGreeting || (state_ == State::kOpen && exports_.awaits_answer(now));
  }
  // Returns true if the channel has ended and renew() was not called.
  bool broken() const { return has_ended() && !renewed_; }
  const Error& error() const { return error_; }  // the cause, once it is broken
  // Returns the socket of the handshake, later that of the exports; mostly none.
  const Fd& socket() const { return socket_ ? socket_ : exports_.socket(); }

  // Handles a readable socket: the answer to the hello, or export messages.
  void on_event();
  // Closes the channel. Waiting sends fail with `cause`, and the ring is marked as ended. The peer
  // may still read, so ring and chunks stay until it publishes that it does not, or ends itself.
  // The first cause is kept.
  void close_with(const Error& cause);
  // If the channel is broken, lets new messages wait for another one to the same peer. That one
  // begins when the former is over.
  void renew() { renewed_ = broken(); }
  // Ends the channel if the peer has published that it reads no more.
  void check_end();
  // Ends the channel after the peer's process or transport has ended. No other channel can follow.
  void on_peer_closed();
  // Returns true while the socket must be watched. Otherwise nothing more is to be read from it.
  bool needs_socket() const {
    return socket_ ? !doorbell_ && state_ != State::kOver && state_ != State::kDialing
                   : exports_.needs_socket();
  }
  void close_socket() { socket_ ? socket_.reset() : exports_.close_socket(); }
  // Handles that the transport cannot watch the socket: closes the channel, or gives up the exports
  // if the socket is theirs.
  void not_watched(const Error& cause);

  // Sends from the caller's memory. The send ends at once, except if the peer reads the payload in
  // place or the message has to wait. `spare`: this process has nothing better to do than to copy.
  void send(ConstBytes header, ConstBytes payload, SendId send_id, bool spare);
  // Sends from a chunk, of which this message becomes a holder. If the channel has its share of
  // large chunks already, sends a copy.
  void send_chunk(ConstBytes header, ChunkPool::Id chunk, size_t bytes, SendId send_id);

  // See Transport::revoke_payload().
  void revoke_payload(SendId send_id);

  // Reclaims messages that the peer has consumed and publishes waiting ones. Returns true if
  // anything happened.
  bool advance();
  // Returns true if the channel waits for the peer to consume something.
  bool waits() const { return !waiting_.empty() || exported_ > 0; }
  // Starts a flush of all messages sent until now. flushed() returns true once the peer has
  // consumed them, or the channel is broken.
  void begin_flush();
  bool flushed() const { return broken() || slots_.reclaimed() >= asked_; }
  // Returns the time since which the peer has consumed nothing, but not before begin_flush().
  TimePoint silent_since() const { return silent_since_; }
  // Returns the time at which advance() must be called even without an event.
  std::optional<TimePoint> due() const;
  // Returns true if the peer has consumed something that advance() has not reclaimed yet.
  bool has_room_again() const { return state_ == State::kOpen && consumed() != slots_.reclaimed(); }

 private:
  static constexpr ChunkPool::Id kNone = UINT32_MAX;
  static constexpr size_t kMostLarge = 16;  // per channel, so that a slow peer cannot hold all

  // A message that is about to be published, or waits for that.
  struct PendingSend {
    std::array<std::byte, kMaxHeaderBytes> header;
    size_t header_size;
    ConstBytes payload;
    ChunkPool::Id chunk = kNone;
    SendId send_id = kNoSendId;
    std::unique_ptr<std::byte[]> copy =
        nullptr;                            // copy of the payload, if only this message needs it
    std::optional<uint64_t> exported = {};  // export address of the payload
    bool spare = false;                     // the parameter of send()
    bool withdrawn = false;                 // revoked while it waited, so it is not sent
  };
  // The resources that a message in the ring holds until the peer has consumed it.
  struct SlotResources {
    ChunkPool::Id chunk = kNone;
    SendId send_id = kNoSendId;  // set for an exported payload
  };

  bool has_ended() const { return state_ == State::kBroken || state_ == State::kOver; }
  // Connects to the peer, and begins the proof. Does nothing while too many handshakes are under
  // way.
  void dial();
  // Continues the proof, and sends the hello after it.
  void prove();
  // Sends the hello.
  void greet(TimePoint now);
  // Counts this channel as a handshake under way.
  void begin_greeting(TimePoint now);
  // Schedules another attempt with a growing pause; closes the channel after 30 s of failures.
  void dial_later(TimePoint now, const Error& cause);
  // Stops counting this channel as a handshake under way.
  void end_greeting();
  void end();
  void end(const Error& cause);
  // Resets a renewed channel that is over, so that it dials again.
  void begin_again();
  // Publishes the message, or lets it wait.
  void enqueue(PendingSend parcel);
  // Ends a message that was not published, with the channel's error.
  void fail(PendingSend& parcel);
  // Reports the end of a send to the receiver.
  void tell(SendId send_id, const Error& error);
  // Releases a chunk that this channel holds.
  void give_back(ChunkPool::Id chunk);
  // Writes the message into the ring. Returns false if slot or memory is missing.
  bool publish(PendingSend& parcel);
  bool place(PendingSend& parcel);
  const ControlBlock& peer_front() const;
  const DekkerWord<uint64_t, ConsumedOrders>& peer_counter() const;
  bool is_exported(PendingSend& parcel);
  // Returns the number of messages that the peer has consumed.
  uint64_t consumed() const;
  void poll();
  // Frees slots up to message number `until` and reports the sends that end with them.
  bool reclaim(uint64_t until);
  bool make_room();
  void withdraw_all();
  // Publishes the oldest waiting message, or drops it if it was revoked. Returns false if there is
  // no place for it.
  bool send_next();

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  TransportDelegate& receiver_;
  const ContextId me_;
  const ContextId peer_;
  const std::string address_;
  const TlsKey* const tls_key_;
  KeyProof proof_;
  State state_ = State::kIdle;
  Error error_;
  Fd socket_;
  std::optional<uint32_t> ring_;
  uint32_t counter_ = 0;  // index in the peer's ControlBlock::consumed
  Mapping peer_memory_;
  std::shared_ptr<PeerDoorbell> doorbell_;
  RingWriter<kSlots> slots_;
  std::array<SlotResources, kSlots> held_{};
  BlockExports exports_;
  size_t exported_ = 0;  // exported payloads in the ring
  size_t chunks_ = 0;    // chunks in the ring
  size_t large_ = 0;     // large chunks, in the ring or waiting
  bool renewed_ = false;
  std::optional<TimePoint> greeting_since_;  // while it counts as a handshake of OwnShmSegment
  TimePoint dialing_since_;
  TimePoint dial_again_;
  Duration dial_pause_{0};
  uint64_t asked_ = 0;  // message number that a flush waits for
  TimePoint silent_since_;
  std::deque<PendingSend> waiting_;
};

}  // namespace ringdist::shm
