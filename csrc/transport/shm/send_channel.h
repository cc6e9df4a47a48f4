// The sending half of a link: from this Context to one peer of its host. Messages go into the
// link's ring at once where there is room, else they wait here. With the lane's token held.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "transport/shm/block_exports.h"
#include "transport/shm/own_shm_segment.h"
#include "transport/shm/peer_doorbells.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

class SendChannel {
 public:
  enum class State { kIdle, kDialing, kGreeting, kOpen, kBroken, kOver };

  // `receiver` hears of the ends of sends.
  SendChannel(OwnShmSegment& own, PeerDoorbells& bells, TransportDelegate& receiver, ContextId me,
              ContextId peer, std::string address)
      : own_(own),
        bells_(bells),
        receiver_(receiver),
        me_(me),
        peer_(peer),
        address_(std::move(address)),
        exports_(address_, me, peer) {}
  SendChannel(const SendChannel&) = delete;

  ContextId peer() const { return peer_; }
  State state() const { return state_; }
  // Its socket is worth a look.
  bool expects_message(TimePoint now) const {
    return state_ == State::kGreeting || (state_ == State::kOpen && exports_.awaits_answer(now));
  }
  bool broken() const { return has_ended() && !renewed_; }
  const Error& error() const { return error_; }  // once it is broken
  // The one that greets, later the one for loans, mostly none.
  const Fd& socket() const { return socket_ ? socket_ : exports_.socket(); }

  // Its socket has something to say.
  void on_event();
  // Fails what waits, and says to the peer that nothing will follow. It may be reading still: until
  // it says that it does not, or is gone, ring and chunks stay as they are; then the link is over.
  // The first cause stays.
  void close_with(const Error& cause);
  // If the link is broken, makes messages wait from here on for another link to the same peer. That
  // one begins when the former is over.
  void renew() { renewed_ = broken(); }
  // Ends the link if the peer reads no more.
  void check_end();
  // Nobody is there for another link either.
  void on_peer_closed();
  // Else nothing more is to be read from its socket: nobody watches it any more.
  bool needs_socket() const {
    return socket_ ? !bell_ && state_ != State::kOver : exports_.needs_socket();
  }
  void close_socket() { socket_ ? socket_.reset() : exports_.close_socket(); }
  // Its socket cannot be watched.
  void not_watched(const Error& cause);

  // From the caller's memory, which is free when the ticket comes back: at once, but for what the
  // peer reads where it lies. `spare`: this process has nothing else to do than to copy.
  void send(ConstBytes header, ConstBytes payload, SendId send_id, bool spare);
  // From a chunk, of which this message gets a hold of its own; or a copy, where the link has its
  // share of chunks already.
  void send_chunk(ConstBytes header, ChunkPool::Id chunk, size_t bytes, SendId send_id);

  // As of Transport.
  void revoke_payload(SendId send_id);

  // Takes back what the peer has consumed and publishes what waits. True if anything happened.
  bool advance();
  // For the peer to consume something.
  bool waits() const { return !waiting_.empty() || exported_ > 0; }
  // Remembers how much was sent until now, and whether the peer has consumed it.
  void begin_flush();
  bool flushed() const { return broken() || slots_.reclaimed() >= asked_; }
  // Since when the peer has consumed nothing, but not before begin_flush().
  TimePoint silent_since() const { return silent_since_; }
  // When advance() must be called without an event.
  std::optional<TimePoint> due() const;
  // The peer has consumed something since advance() was last called.
  bool has_room_again() const { return state_ == State::kOpen && consumed() != slots_.reclaimed(); }

 private:
  static constexpr ChunkPool::Id kNone = UINT32_MAX;
  static constexpr size_t kMostLarge = 16;  // of one link: a slow peer must not hold them all

  struct PendingSend {
    std::array<std::byte, kMaxHeaderBytes> header;
    size_t header_size;
    ConstBytes payload;
    ChunkPool::Id chunk = kNone;
    SendId send_id = kNoSendId;
    std::unique_ptr<std::byte[]> copy = nullptr;  // of the payload, if it is nobody else's
    std::optional<uint64_t> exported = {};        // where the peer finds the payload
    bool spare = false;
    bool withdrawn = false;
  };
  // What a message in the ring holds.
  struct SlotResources {
    ChunkPool::Id chunk = kNone;
    SendId send_id = kNoSendId;  // of one whose payload is lent
  };

  bool has_ended() const { return state_ == State::kBroken || state_ == State::kOver; }
  void dial();
  void dial_later(TimePoint now, const Error& cause);
  void end_greeting();
  void end();
  void end(const Error& cause);
  void begin_again();
  void enqueue(PendingSend parcel);
  void fail(PendingSend& parcel);
  void tell(SendId send_id, const Error& error);
  void give_back(ChunkPool::Id chunk);
  bool publish(PendingSend& parcel);
  bool place(PendingSend& parcel);
  const ControlBlock& peer_front() const;
  const DekkerWord<uint64_t, ConsumedOrders>& peer_counter() const;
  bool is_exported(PendingSend& parcel);
  uint64_t consumed() const;
  void poll();
  bool reclaim(uint64_t until);
  bool make_room();
  void withdraw_all();
  bool send_next();

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  TransportDelegate& receiver_;
  const ContextId me_;
  const ContextId peer_;
  const std::string address_;
  State state_ = State::kIdle;
  Error error_;
  Fd socket_;
  std::optional<uint32_t> ring_;
  uint32_t counter_ = 0;  // of the peer, where it counts what it consumed
  Mapping peer_memory_;
  std::shared_ptr<PeerDoorbell> bell_;
  RingWriter<kSlots> slots_;
  std::array<SlotResources, kSlots> held_{};
  BlockExports exports_;
  size_t exported_ = 0;  // in the ring
  size_t chunks_ = 0;    // in the ring
  size_t large_ = 0;     // large ones, in the ring or waiting
  bool renewed_ = false;
  std::optional<TimePoint> greeting_since_;  // while it counts as one of OwnShmSegment's greetings
  TimePoint dialing_since_;
  TimePoint dial_again_;
  Duration dial_pause_{0};
  uint64_t asked_ = 0;
  TimePoint silent_since_;
  std::deque<PendingSend> waiting_;
};

}  // namespace ringdist::shm
