// The receiving half of a channel from one peer of this host to this Context. It is created for an
// incoming connection and reads the ring that the peer's hello names. It ends when the peer has
// marked its ring as ended, or has ended itself. Requires the lane's progress lock.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "os/epoll.h"
#include "transport/shm/block_exports.h"
#include "transport/shm/key_proof.h"
#include "transport/shm/own_shm_segment.h"
#include "transport/shm/peer_doorbells.h"
#include "transport/shm/ring.h"
#include "transport/shm/shm_hello.h"

namespace ringdist::shm {

// Returns false if process `pid`, which has dialed, cannot be Context `from`, and nothing as long
// as this process has no address of `from`. `pid` is 0 if it is not visible from here.
using SenderCheck = std::function<std::optional<bool>(ContextId from, pid_t pid)>;

// Reads one ring of one peer. Life cycle: connected, greeted, bound to a peer, ended (nothing more
// is published), finished (all has been delivered), released, over. While it is greeted, its hello
// waits for the address of the peer that it names.
class RecvChannel {
 public:
  // `pid` is the process at the other end of `socket`. `check_sender` must outlive the channel.
  RecvChannel(OwnShmSegment& own, PeerDoorbells& bells, ContextId me, Fd socket, pid_t pid,
              const SenderCheck& check_sender, KeyProof proof)
      : own_(own),
        bells_(bells),
        me_(me),
        socket_(std::move(socket)),
        pid_(pid),
        check_sender_(check_sender),
        since_(Clock::now()),
        proof_(std::move(proof)) {}
  ~RecvChannel();
  RecvChannel(const RecvChannel&) = delete;

  const Fd& socket() const { return socket_; }
  // Returns true while the socket must be watched. Otherwise nothing more is to be read from it.
  bool needs_socket() const { return !ended() && (has_exports_ || !doorbell_ || answer_again_); }
  void close_socket() { socket_.reset(); }
  std::optional<ContextId> peer() const { return peer_; }

  // Handles a readable socket: the hello, export messages, or that the peer has closed it.
  void on_event();
  // Returns true if its hello waits for an address.
  bool is_waiting() const { return !ended() && hello_; }
  // Checks the sender of the hello that waits. If there is an address, accepts or refuses it.
  void check_hello();
  // Returns the hello if it belongs to an export connection for another RecvChannel instead of a
  // channel of its own.
  const std::optional<ShmHello>& for_exports() const { return for_exports_; }
  Fd take_socket() { return std::move(socket_); }
  // Returns true if this channel has not ended and reads that ring of that peer.
  bool is_of(ContextId peer, uint32_t ring) const;
  // Returns the time at which answer() must be called, if the hello could not be answered at once.
  std::optional<TimePoint> due() const { return ended() ? std::nullopt : answer_again_; }
  // Sends the answer to the hello. If the kernel lacks room, due() is set for another attempt;
  // after 30 s the channel ends.
  void answer();
  // Uses the socket as the connection for exports from here on. There must be no other one.
  void begin_exports(Fd socket);
  // Delivers the messages that are there, at most `most`, and fewer if the receiver does not take
  // more. Returns true if there was one.
  bool deliver(TransportDelegate& receiver, int most);
  bool has_messages() const { return ring_ && slots_.has_message(published()); }
  // Ends the channel: messages published so far can still be read, later ones are ignored. The
  // first cause is kept.
  void end(const Error& cause);
  // Ends the channel if the peer has marked its ring as ended.
  void check_end();
  bool ended() const { return static_cast<bool>(error_); }
  const Error& error() const { return error_; }
  // Returns true if the channel has ended and nothing is left to deliver.
  bool finished() const { return ended() && !has_messages(); }
  // Releases a finished channel: reports to the peer that nothing more is read, and unmaps its
  // memory.
  void release();
  bool was_released() const { return released_; }
  // Records that the peer has opened another channel, which it does only after this one has ended
  // on its side.
  void replace() { replaced_ = true; }
  // Returns true if the channel can be deleted. The peer reads its counter no more, so another
  // channel may get it.
  bool over() const { return released_ && (!doorbell_ || doorbell_->closed() || replaced_); }
  // Returns true if it has sent no hello for 5 s, or waits for an address for 30 s.
  bool is_outsider(TimePoint now) const;

 private:
  uint64_t published() const;  // without the kLast bit
  // Continues the proof. Returns true once it is over, and ends the channel if it fails.
  bool is_proven();
  // Delivers the next message and publishes that it was consumed. Ends the channel if the message
  // is invalid.
  void consume_one(TransportDelegate& receiver);
  void receive_exports();
  // Finds the payload of a slot, checks that it lies in the peer's memory, and maps more chunks if
  // necessary.
  std::optional<ConstBytes> payload(const Slot& slot, uint32_t header, size_t bytes);

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  const ContextId me_;
  Fd socket_;
  const pid_t pid_;
  const SenderCheck& check_sender_;
  const TimePoint since_;
  KeyProof proof_;
  std::optional<ReceivedHello> hello_;  // until there is an address of its sender
  std::optional<ContextId> peer_;
  std::optional<ShmHello> for_exports_;
  std::optional<uint32_t> counter_;
  uint32_t ring_index_ = 0;
  const Ring* ring_ = nullptr;
  Mapping memory_;  // the peer's ControlBlock and rings up to this one
  Mapping chunks_;  // mapped as far as messages have needed it
  std::shared_ptr<PeerDoorbell> doorbell_;
  BlockImports imports_;
  bool has_exports_ = false;  // the socket is the export connection
  RingReader<kSlots> slots_;
  uint64_t last_ = 0;  // the published count at which it has ended
  Error error_;
  bool released_ = false;
  bool replaced_ = false;
  std::optional<TimePoint> answer_again_;
};

// All channels that come in to this Context, and the socket at which they do. Requires the lane's
// progress lock.
class RecvChannelTable {
 public:
  RecvChannelTable(OwnShmSegment& own, PeerDoorbells& bells, ContextId me, const Epoll& epoll,
                   SenderCheck check_sender, std::shared_ptr<const TlsKey> tls_key)
      : own_(own),
        bells_(bells),
        me_(me),
        epoll_(epoll),
        check_sender_(std::move(check_sender)),
        tls_key_(std::move(tls_key)) {}

  // Listens at a new abstract address. Uses keys of the epoll set from `first_key` on.
  Error listen(uint64_t first_key);
  const std::string& address() const { return address_; }

  // Handles an event. Returns false if the key belongs to no channel and is not the listener's.
  bool on_event(uint64_t key);
  // Handles the hellos that wait for addresses, after add_peer().
  void check_waiting();
  // Delivers a few messages of every channel. Returns true if there were any.
  bool deliver(TransportDelegate& receiver);
  bool has_messages() const;
  bool has_messages_of(ContextId peer) const;
  // Returns true if reap() has work without an event.
  bool has_finished() const;
  // Releases channels that have ended and were read to their end, and reports them to `lost`. Also
  // retries answers and deletes channels that are over. Returns true if any was released.
  bool reap(TimePoint now, const std::function<void(ContextId, const Error&)>& lost);
  // Returns the time at which reap() must be called even without an event.
  std::optional<TimePoint> due() const;
  // Ends the channels of a peer. Messages that it has published so far are still delivered.
  void drop(ContextId peer, const Error& cause);
  // Closes all sockets and drops all channels.
  void close();

 private:
  using Links = std::map<uint64_t, std::unique_ptr<RecvChannel>>;

  // Calls `act`, which handles the hello or another event of the channel, and updates the table.
  void handle(Links::iterator it, void (RecvChannel::*act)());
  // Accepts connections of this user, and closes others. If descriptors run out, stops watching the
  // listener until reap().
  void accept_all();
  // Closes the channel's socket if it does not need it.
  void close_unneeded_socket(RecvChannel& link) const;
  void close_socket(RecvChannel& link) const;
  // Moves the socket of a connection with an export hello to the channel that it belongs to.
  void hand_over(Links::iterator caller);

  OwnShmSegment& own_;
  PeerDoorbells& bells_;
  const ContextId me_;
  const Epoll& epoll_;
  const SenderCheck check_sender_;
  const std::shared_ptr<const TlsKey> tls_key_;
  std::string address_;
  Fd listener_;
  std::optional<TimePoint> accept_again_;  // set while no descriptor was left
  bool warned_ = false;                    // the shortage was logged
  uint64_t listener_key_ = 0;
  uint64_t next_key_ = 0;
  Links links_;
};

}  // namespace ringdist::shm
