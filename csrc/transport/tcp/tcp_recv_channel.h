// Channel of transport `tcp` from one peer to this process. It survives its connections: the sender
// continues with the first record that the channel has not handled.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "os/epoll.h"
#include "os/fd.h"
#include "os/fork_guard.h"
#include "transport/tcp/data_port.h"

namespace ringdist::tcp {

// The receiving half of a pair of processes.
class TcpRecvChannel {
 public:
  // `number` is that of the sender's hello. Events of the connection are reported by `epoll`, which
  // outlives the channel, with `key`.
  TcpRecvChannel(ContextId from, uint32_t number, size_t max_payload, const Epoll& epoll,
                 uint64_t key)
      : from_(from), number_(number), key_(key), max_payload_(max_payload), epoll_(epoll) {}
  ~TcpRecvChannel() { close(); }
  TcpRecvChannel(const TcpRecvChannel&) = delete;
  TcpRecvChannel& operator=(const TcpRecvChannel&) = delete;

  ContextId from() const { return from_; }
  uint32_t number() const { return number_; }
  uint64_t key() const { return key_; }
  bool is_connected() const { return static_cast<bool>(socket_); }

  // Continues on a new connection.
  void connect(Fd socket, TimePoint now);
  // Called for each record with its part about the opposite channel, before the record is
  // delivered.
  using OnHandled = std::function<void(const Handled& handled)>;
  // Reads what has arrived, up to a limit, and delivers it. If nothing more is there, sends an
  // acknowledgement that the sender waits for. Returns true if anything was delivered.
  bool read(TransportDelegate& receiver, const OnHandled& on_handled, TimePoint now);
  // Returns true if records lie here because TransportDelegate::takes_more() returned false.
  bool has_records() const { return has_records_; }
  // Returns the count for a record that leaves now, and records that it was sent.
  Handled mark_acknowledged();
  // Returns true if the sender waits for an acknowledgement.
  bool must_acknowledge() const;
  void acknowledge(TimePoint now);
  // Sends an acknowledgement that is due.
  void tick(TimePoint now);
  // Returns when tick() is due next; nothing if it is not.
  std::optional<TimePoint> due() const { return acknowledge_at_; }
  // Closes the connection. Records that were read stay.
  void close();

 private:
  // Delivers whole records. Returns true if there was one.
  bool deliver(TransportDelegate& receiver, const OnHandled& on_handled);
  // Reads from the socket once. Returns the number of bytes.
  size_t receive();
  void drop_input();

  const ContextId from_;
  const uint32_t number_;
  const uint64_t key_;
  const size_t max_payload_;
  const Epoll& epoll_;
  Fd socket_;
  std::vector<std::byte> buffer_;  // has the unread bytes [begin_, end_)
  size_t largest_ = 0;             // bytes of the largest record so far
  size_t begin_ = 0;
  size_t end_ = 0;
  uint64_t handled_ = 0;       // records handled since the channel began
  uint64_t acknowledged_ = 0;  // value of handled_ in the last acknowledgement
  bool sender_waits_ = false;  // for an acknowledgement, by which a send of it ends
  bool has_records_ = false;
  std::optional<TimePoint> acknowledge_at_;
  ForkMark mark_;
};

}  // namespace ringdist::tcp
