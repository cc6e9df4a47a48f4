// Channel of transport `tcp` from this process to one peer. It numbers its records and keeps each
// until the peer has acknowledged it. If the connection breaks, it dials again and continues with
// the first record that the peer has not handled, so that nothing is lost or delivered twice.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "os/epoll.h"
#include "os/fd.h"
#include "os/fork_guard.h"
#include "os/socket.h"
#include "transport/staging_pool.h"
#include "transport/tcp/data_port.h"

namespace ringdist::tcp {

// Where and how a process accepts connections for data.
struct DataAddress {
  DataSecret secret{};
  std::vector<std::string> addresses;  // "ip:port", in order of preference

  std::vector<std::byte> encode() const;
  // Returns nothing for bytes that encode() has not made.
  static std::optional<DataAddress> decode(ConstBytes bytes);
};

// One message, or nothing more than its header, on its way to a peer.
struct OutgoingRecord {
  ConstBytes payload;
  SendId send_id = kNoSendId;
  const std::byte* staged = nullptr;  // the reservation that holds the payload, or null
};

// The sending half of a pair of processes.
class TcpSendChannel {
 public:
  // Events of the connection are reported by `epoll` with `key`. A connection that cannot be made
  // for `peer_timeout` breaks the channel. `receiver`, `staging` and `epoll` outlive the channel.
  // Connections come from `own_ip`, by which the peer recognizes this process.
  TcpSendChannel(ContextId me, ContextId peer, DataAddress to, std::string own_ip,
                 Duration peer_timeout, TransportDelegate& receiver, StagingPool& staging,
                 const Epoll& epoll, uint64_t key);
  ~TcpSendChannel() { close_socket(); }
  TcpSendChannel(const TcpSendChannel&) = delete;
  TcpSendChannel& operator=(const TcpSendChannel&) = delete;

  ContextId peer() const { return hello_.to; }
  // Returns true if a connection from `ip` may be one of the peer; see may_have_ip().
  bool may_come_from(const std::string& ip) const;
  // Returns true if a record would leave at once.
  bool is_ready() const { return state_ == State::kOpen && next_ == records_.size(); }
  // The cause, if the channel is broken. Then no send succeeds until renew().
  const Error& broken() const { return broken_; }

  // Sends a message. `handled` is about the channel from that peer. A broken channel ends the send
  // with its error.
  void send(ConstBytes header, const OutgoingRecord& record, const Handled& handled, TimePoint now);
  // Handles the part about this channel of a record that the peer has sent. Returns true if a send
  // has ended.
  bool on_handled(const Handled& handled, TimePoint now);
  // Copies the payload of that send, if it has not ended, so that the caller may change it. Without
  // memory, the next tick() breaks the channel. Does not throw.
  void keep_copy(SendId send_id) noexcept;
  // Requests an acknowledgement of everything sent so far, without delay.
  void begin_flush(TimePoint now);
  // Returns true if the peer has acknowledged everything, or if the channel is broken.
  bool flushed() const { return records_.empty() || broken_; }
  // Returns since when the peer has acknowledged nothing. Meaningful while not flushed().
  TimePoint silent_since() const { return silent_since_; }

  // Handles an event of the connection. Returns true if a send has ended.
  bool on_event(TimePoint now);
  // Dials, repeats a write and checks timeouts, if that is due.
  void tick(TimePoint now);
  // Returns when tick() is due next; nothing if it is not.
  std::optional<TimePoint> due() const;

  // Ends all sends with the error, and breaks the channel.
  void close_with(const Error& error);
  // Begins a new channel after the former one broke.
  void renew();

 private:
  enum class State : uint8_t {
    kIdle,        // no connection
    kConnecting,  // dialed
    kGreeting,    // the hello is sent, and its answer is missing
    kOpen,
  };
  // A record that the peer has not acknowledged. `head` has the RecordHead, the message's header,
  // and a payload that was copied.
  struct Kept {
    std::vector<std::byte> head;
    OutgoingRecord record;
    size_t bytes() const { return head.size() + record.payload.size(); }
  };

  void push(Kept kept, TimePoint now);
  void dial(TimePoint now);
  // Handles the end of a dial: sends the hello.
  void connected(TimePoint now);
  // Writes as many records as the socket takes.
  void flush(TimePoint now);
  // Reads acknowledgements. Returns true if a send has ended.
  bool receive(TimePoint now);
  // Handles the number of records that the peer has. Returns true if a send has ended.
  bool acknowledged(uint64_t count, TimePoint now);
  void end(const OutgoingRecord& record, const Error& error);
  // Closes the connection. If something is to be sent, dials again soon, or breaks the channel if
  // there was no connection for too long.
  void connection_lost(const std::string& what, int errno_value, TimePoint now);
  void break_channel(const Error& cause);
  void watch(uint32_t events);
  void close_socket();

  const DataAddress to_;
  const std::string own_ip_;
  const Duration peer_timeout_;
  TransportDelegate& receiver_;
  StagingPool& staging_;
  const Epoll& epoll_;
  const uint64_t key_;
  DataHello hello_;
  Error broken_;
  State state_ = State::kIdle;
  Fd socket_;
  uint32_t watched_ = 0;  // the events in the epoll set; 0 if the socket is not in it
  size_t address_ = 0;    // index of the address that is dialed
  std::deque<Kept> records_;
  uint64_t first_ = 0;            // number of records_.front()
  size_t next_ = 0;               // index of the first record that is not written completely
  size_t written_ = 0;            // bytes of that record that are written
  size_t copied_ = 0;             // bytes of copied payloads in records_
  std::vector<std::byte> input_;  // the begin of an acknowledgement
  std::optional<TimePoint> failing_since_;  // first failure after the last acknowledgement
  std::optional<TimePoint> refused_since_;  // the peer's port has refused connections since
  std::optional<TimePoint> tick_at_;
  bool unsendable_ = false;  // a payload is lost, so the channel breaks
  Duration pause_{0};        // before the next dial
  TimePoint silent_since_{};
  ForkMark mark_;
};

}  // namespace ringdist::tcp
