// The receiving half of a link: from one peer of this host to this Context. Made for a connection
// that came in; it reads the ring that the peer's hello names. With the lane's token held.
#pragma once

#include <optional>

#include "transport/shm/borrowed.h"
#include "transport/shm/hello.h"
#include "transport/shm/own_segment.h"
#include "transport/shm/ring_reader.h"

namespace ringdist::shm {

class Inlink {
 public:
  Inlink(OwnSegment& own, ContextId me, Fd socket)
      : own_(own), me_(me), socket_(std::move(socket)), since_(Clock::now()) {}
  ~Inlink();
  Inlink(const Inlink&) = delete;

  const Fd& socket() const { return socket_; }
  std::optional<ContextId> peer() const { return peer_; }

  // Its socket has something to say: the hello, a loan, or that the peer is gone.
  void on_event();
  // Gives messages to the receiver, as many as are there and at most `most`.
  bool deliver(Receiver& receiver, int most);
  bool has_messages() const { return ring_ && slots_.has_message(published()); }
  // What the peer has published so far is all there will be. The first cause stays.
  void end(const Error& cause);
  bool ended() const { return static_cast<bool>(error_); }
  const Error& error() const { return error_; }
  // Ended, and nothing is left to deliver.
  bool finished() const { return ended() && !has_messages(); }
  // Connected, and has not said who it is.
  bool is_stranger(TimePoint now) const;

 private:
  uint64_t published() const;
  void consume_one(Receiver& receiver);
  std::optional<ConstBytes> payload(const Slot& slot, uint32_t header, size_t bytes) const;

  OwnSegment& own_;
  const ContextId me_;
  Fd socket_;
  const TimePoint since_;
  std::optional<ContextId> peer_;
  std::optional<uint32_t> counter_;
  const Ring* ring_ = nullptr;
  Mapping memory_;
  Borrowed borrowed_;
  std::optional<EventFd> doorbell_;
  RingReader<kSlots> slots_;
  uint64_t last_ = 0;  // once it has ended
  Error error_;
};

}  // namespace ringdist::shm
