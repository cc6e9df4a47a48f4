// The receiving half of a link: from one peer of this host to this Context. Made for a connection
// that came in; it reads the ring that the peer's hello names, until the peer says that nothing
// follows or is gone. With the lane's token held.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "os/epoll.h"
#include "transport/shm/block_exports.h"
#include "transport/shm/own_shm_segment.h"
#include "transport/shm/peer_doorbells.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

class RecvChannel {
 public:
  RecvChannel(OwnShmSegment& own, PeerDoorbells& bells, ContextId me, Fd socket)
      : own_(own), bells_(bells), me_(me), socket_(std::move(socket)), since_(Clock::now()) {}
  ~RecvChannel();
  RecvChannel(const RecvChannel&) = delete;

  const Fd& socket() const { return socket_; }
  // Else nothing more is to be read from the socket: nobody watches it any more.
  bool needs_socket() const { return !ended() && (has_exports_ || !bell_ || answer_again_); }
  void close_socket() { socket_.reset(); }
  std::optional<ContextId> peer() const { return peer_; }

  // Its socket has something to say: the hello, a loan, or that it is closed.
  void on_event();
  // Its hello was no link's, but of a connection for the loans of one that is there.
  const std::optional<ShmHello>& for_exports() const { return for_exports_; }
  Fd take_socket() { return std::move(socket_); }
  // It reads that ring of that peer.
  bool is_of(ContextId peer, uint32_t ring) const;
  // Its hello could not be answered at once: when to call answer().
  std::optional<TimePoint> due() const { return ended() ? std::nullopt : answer_again_; }
  void answer();
  // This is the connection for its loans from here on; it has no other.
  void begin_exports(Fd socket);
  // Gives messages to the receiver, as many as are there and at most `most`.
  bool deliver(TransportDelegate& receiver, int most);
  bool has_messages() const { return ring_ && slots_.has_message(published()); }
  // What the peer has published so far is all there will be. The first cause stays.
  void end(const Error& cause);
  // The same, if the peer has said so.
  void check_end();
  bool ended() const { return static_cast<bool>(error_); }
  const Error& error() const { return error_; }
  // Ended, and nothing is left to deliver.
  bool finished() const { return ended() && !has_messages(); }
  // Of one that is finished: says to the peer that it reads no more, and unmaps its memory.
  void release();
  bool was_released() const { return released_; }
  // The peer has begun another link, so it has ended this one.
  void replace() { replaced_ = true; }
  // Nobody looks at its counter any more, which another link may have then.
  bool over() const { return released_ && (!bell_ || bell_->closed() || replaced_); }
  // Connected, and has not said who it is.
  bool is_stranger(TimePoint now) const;

 private:
  uint64_t published() const;  // without kLast
  void consume_one(TransportDelegate& receiver);
  void receive_exports();
  std::optional<ConstBytes> payload(const Slot& slot, uint32_t header, size_t bytes);

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  const ContextId me_;
  Fd socket_;
  const TimePoint since_;
  std::optional<ContextId> peer_;
  std::optional<ShmHello> for_exports_;
  std::optional<uint32_t> counter_;
  uint32_t ring_index_ = 0;
  const Ring* ring_ = nullptr;
  Mapping memory_;  // the ControlBlock and the ring
  Mapping chunks_;  // as far as messages have come
  std::shared_ptr<PeerDoorbell> bell_;
  BlockImports imports_;
  bool has_exports_ = false;  // the socket is the one for loans
  RingReader<kSlots> slots_;
  uint64_t last_ = 0;  // once it has ended
  Error error_;
  bool released_ = false;
  bool replaced_ = false;
  std::optional<TimePoint> answer_again_;
};

// All links that come in to this Context, and the socket at which they do. With the lane's token
// held.
class RecvChannelTable {
 public:
  RecvChannelTable(OwnShmSegment& own, PeerDoorbells& bells, ContextId me, const Epoll& epoll)
      : own_(own), bells_(bells), me_(me), epoll_(epoll) {}

  // Keys of the epoll set below `first_key` are others'.
  Error listen(uint64_t first_key);
  const std::string& address() const { return address_; }

  // False if the key is none of ours.
  bool on_event(uint64_t key);
  // A few messages of every link. True if there were any.
  bool deliver(TransportDelegate& receiver);
  bool has_messages() const;
  bool has_messages_of(ContextId peer) const;
  // Something for reap() without an event.
  bool has_finished() const;
  // Lets go of links that have ended and been read to their end, and says whose they were.
  bool reap(TimePoint now, const std::function<void(ContextId, const Error&)>& lost);
  // When to reap() even without an event.
  std::optional<TimePoint> due() const;
  // What this peer has sent so far is all there will be.
  void drop(ContextId peer, const Error& cause);
  void close();

 private:
  void accept_all();
  void close_unneeded_socket(RecvChannel& link) const;
  void close_socket(RecvChannel& link) const;
  void hand_over(std::map<uint64_t, std::unique_ptr<RecvChannel>>::iterator caller);

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  const ContextId me_;
  const Epoll& epoll_;
  std::string address_;
  Fd listener_;
  std::optional<TimePoint> accept_again_;  // no descriptor was left
  bool warned_ = false;                    // so in the log
  uint64_t listener_key_ = 0;
  uint64_t next_key_ = 0;
  std::map<uint64_t, std::unique_ptr<RecvChannel>> links_;
};

}  // namespace ringdist::shm
