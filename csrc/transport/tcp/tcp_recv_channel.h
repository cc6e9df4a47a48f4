// Channel of transport `tcp` from one peer to this process. It puts the records of its connections
// in order by their numbers, and drops repeats. It survives its connections: the sender continues
// with the first record that the channel has not handled.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "os/epoll.h"
#include "os/fork_guard.h"
#include "os/stream.h"
#include "transport/tcp/data_port.h"

namespace ringdist::tcp {

// The receiving half of a pair of processes.
class TcpRecvChannel {
 public:
  // `number` is that of the sender's hello. Events of connection i are reported by `epoll`, which
  // outlives the channel, with `key` + i.
  TcpRecvChannel(ContextId from, uint32_t number, size_t max_payload, const Epoll& epoll,
                 uint64_t key)
      : from_(from), number_(number), key_(key), max_payload_(max_payload), epoll_(epoll) {}
  ~TcpRecvChannel() { close(); }
  TcpRecvChannel(const TcpRecvChannel&) = delete;
  TcpRecvChannel& operator=(const TcpRecvChannel&) = delete;

  ContextId from() const { return from_; }
  uint32_t number() const { return number_; }
  uint64_t key() const { return key_; }
  bool is_connected() const { return std::ranges::any_of(connections_, &Connection::is_open); }

  // Replaces connection `path`, which is below kMostPaths.
  void connect(size_t path, Stream socket, TimePoint now);
  // Called for each record with its part about the opposite channel, before the record is
  // delivered.
  using OnHandled = std::function<void(const Handled& handled)>;
  // Reads what has arrived on connection `path`, up to a limit, and delivers it. If nothing more is
  // there, sends an acknowledgement that the sender waits for. Returns true if anything was
  // delivered.
  bool read(size_t path, TransportDelegate& receiver, const OnHandled& on_handled, TimePoint now);
  // Returns true if read() must be called again for connection `path` without an event.
  bool must_read(size_t path) const {
    return connections_[path].has_records || connections_[path].socket.has_input();
  }
  // Returns true if records lie here because TransportDelegate::takes_more() returned false.
  bool has_records() const { return std::ranges::any_of(connections_, &Connection::has_records); }
  // Returns the count for a record that leaves now, and records that it was sent.
  Handled mark_acknowledged();
  // Returns true if the sender waits for an acknowledgement.
  bool must_acknowledge() const;
  void acknowledge(TimePoint now);
  // Sends an acknowledgement that is due.
  void tick(TimePoint now);
  // Returns when tick() is due next; nothing if it is not.
  std::optional<TimePoint> due() const { return acknowledge_at_; }
  // Closes the connections. Records that were read stay.
  void close();

 private:
  struct Connection {
    Stream socket;
    std::vector<std::byte> buffer;  // has the unread bytes [begin, end)
    size_t begin = 0;
    size_t end = 0;
    bool has_records = false;
    bool is_open() const { return static_cast<bool>(socket); }
    size_t unread() const { return end - begin; }
    void drop_input();
  };

  // Delivers records that are whole and come next. Returns true if there was one.
  bool deliver(Connection& from, TransportDelegate& receiver, const OnHandled& on_handled);
  // Delivers early records that come next. Returns false if takes_more() did.
  bool deliver_early(TransportDelegate& receiver, const OnHandled& on_handled);
  void deliver_one(ConstBytes record, TransportDelegate& receiver, const OnHandled& on_handled);
  // Keeps a record that does not come next. Returns false if there are too many.
  bool keep_early(uint64_t number, ConstBytes record);
  // Reads from the socket once. Returns the number of bytes.
  size_t receive(Connection& from);
  void close(Connection& connection);

  const ContextId from_;
  const uint32_t number_;
  const uint64_t key_;
  const size_t max_payload_;
  const Epoll& epoll_;
  std::array<Connection, kMostPaths> connections_;
  std::map<uint64_t, std::vector<std::byte>>
      early_;  // records by number; an earlier one is missing
  size_t early_bytes_ = 0;
  size_t largest_ = 0;         // bytes of the largest record so far
  uint64_t handled_ = 0;       // records handled since the channel began
  uint64_t acknowledged_ = 0;  // value of handled_ in the last acknowledgement
  bool sender_waits_ = false;  // for an acknowledgement, by which a send of it ends
  std::optional<TimePoint> acknowledge_at_;
  ForkMark mark_;
};

}  // namespace ringdist::tcp
