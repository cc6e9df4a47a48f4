// Channel of transport `tcp` from this process to one peer. It numbers its records and keeps each
// until the peer has acknowledged it. If a connection breaks, the records that it had are sent by
// the others, and it dials again. So nothing is lost or delivered twice.
//
// There is a connection for each pair of network interfaces. The first one alone is used until its
// socket is full. Then each connection takes a record when it has room for one, so that a faster
// network carries more.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "os/epoll.h"
#include "os/fork_guard.h"
#include "os/socket.h"
#include "os/tls_key.h"
#include "transport/staging_pool.h"
#include "transport/tcp/data_port.h"

namespace ringdist::tcp {

// With several connections, the bytes of each are looked at so often.
inline constexpr Duration kStuckCheck = Milliseconds(100);

// One message, or nothing more than its header, on its way to a peer.
struct OutgoingRecord {
  ConstBytes payload;
  SendId send_id = kNoSendId;
  const std::byte* staged = nullptr;  // the reservation that holds the payload, or null
};

// The sending half of a pair of processes.
class TcpSendChannel {
 public:
  // Events of connection i are reported by `epoll` with `key` + i. If no connection can be made for
  // `peer_timeout`, the channel breaks. `receiver`, `staging` and `epoll` outlive the channel.
  // Connections come from `own_ips`, by which the peer recognizes this process. With a `tls_key`,
  // which outlives the channel, they are encrypted.
  TcpSendChannel(ContextId me, ContextId peer, DataAddress to,
                 const std::vector<std::string>& own_ips, Duration peer_timeout,
                 TransportDelegate& receiver, StagingPool& staging, const Epoll& epoll,
                 uint64_t key, const TlsKey* tls_key);
  ~TcpSendChannel() {
    for (Connection& one : connections_) close_socket(one);
  }
  TcpSendChannel(const TcpSendChannel&) = delete;
  TcpSendChannel& operator=(const TcpSendChannel&) = delete;

  ContextId peer() const { return hello_.to; }
  // Returns true if a connection from `ip` may be one of the peer; see may_have_ip().
  bool may_come_from(const std::string& ip) const;
  // Returns true if a record would leave at once.
  bool is_ready() const {
    return connections_[0].state == State::kOpen && connections_[0].is_written() &&
           next_ == records_.size() && (!has_several() || next_ == 0 || on_the_way_ <= kWindow);
  }
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

  // Handles an event of connection `path`. Returns true if a send has ended.
  bool on_event(size_t path, TimePoint now);
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
    int path = -1;  // the connection that has it, or -1
    size_t bytes() const { return head.size() + record.payload.size(); }
    size_t cost() const { return bytes() + kRecordCost; }
  };
  // One connection, on one pair of interfaces.
  struct Connection {
    Path path;
    int index = 0;  // in connections_
    State state = State::kIdle;
    Stream socket;
    uint32_t watched = 0;  // the events in the epoll set; 0 if the socket is not in it
    std::optional<TimePoint> tick_at;
    Duration pause{0};             // before the next dial
    std::deque<uint64_t> queue;    // numbers of its records that are not written completely
    size_t written = 0;            // bytes of the first one that are written
    std::vector<std::byte> rest;   // the end of a record that has no memory now
    std::vector<std::byte> input;  // the begin of an acknowledgement
    TimePoint moved_at{};          // when `confirmed` last changed, or nothing was on the network
    uint64_t confirmed = 0;        // bytes of the connection that the peer's kernel has received
    bool is_written() const { return queue.empty() && rest.empty() && !socket.has_output(); }
  };

  bool has_several() const { return connections_.size() > 1; }
  Kept& kept(uint64_t number) { return records_[static_cast<size_t>(number - first_)]; }
  // Moves next_ to a record that no connection has.
  void skip_assigned() {
    while (next_ < records_.size() && records_[next_].path >= 0) ++next_;
  }
  void push(Kept kept, TimePoint now);
  // Gives records to open connections that have none, and writes them.
  void distribute(TimePoint now);
  // Takes records for a connection until it has enough for a write.
  void assign(Connection& connection);
  void dial(Connection& connection, TimePoint now);
  // Dials the connections that are idle and do not wait.
  void dial_all(TimePoint now);
  // Continues a dial. At its end, sends the hello.
  void connected(Connection& connection, TimePoint now);
  // Writes as much as the socket takes.
  void flush(Connection& connection, TimePoint now);
  // Removes what was written from the connection's queue.
  void advance(Connection& connection, size_t bytes);
  // Reads acknowledgements. Returns true if a send has ended.
  bool receive(Connection& connection, TimePoint now);
  // Handles the number of records that the peer has. Returns true if a send has ended.
  bool acknowledged(uint64_t count, TimePoint now);
  // Removes the first record, which is acknowledged, from the queue of its connection.
  void forget(const Kept& first, Connection& connection);
  void end(const OutgoingRecord& record, const Error& error);
  // Closes the connection and gives its records to others. If something is to be sent, dials again
  // soon, or breaks the channel if there was no connection for too long.
  void connection_lost(Connection& connection, const std::string& what, int errno_value,
                       TimePoint now);
  // Returns true if the bytes of a connection do not arrive, while those of another one do.
  bool is_stuck(const Connection& connection, TimePoint now);
  // Returns true if the peer's kernel has all bytes of a connection, and the peer does not
  // acknowledge them: somebody on the way may have dropped some.
  bool is_silent(const Connection& connection, TimePoint now) const;
  void break_channel(const Error& cause);
  void watch(Connection& connection, uint32_t events);
  void close_socket(Connection& connection);

  const DataAddress to_;
  const Duration peer_timeout_;
  const Duration longest_silence_;  // while acknowledgements are due
  TransportDelegate& receiver_;
  StagingPool& staging_;
  const Epoll& epoll_;
  const uint64_t key_;
  const TlsKey* const tls_key_;
  DataHello hello_;
  Error broken_;
  std::vector<Connection> connections_;
  std::deque<Kept> records_;
  uint64_t first_ = 0;                      // number of records_.front()
  size_t next_ = 0;                         // index of the first record that no connection has
  size_t copied_ = 0;                       // bytes of copied payloads in records_
  size_t on_the_way_ = 0;                   // cost of the records that connections have
  std::optional<TimePoint> failing_since_;  // first failure after the last acknowledgement
  std::optional<TimePoint> refused_since_;  // the peer's ports have refused connections since
  bool unsendable_ = false;                 // a payload is lost, so the channel breaks
  TimePoint silent_since_{};
  TimePoint progressed_at_{};  // time of the last new acknowledgement, or of the first record
  ForkMark mark_;
};

}  // namespace ringdist::tcp
