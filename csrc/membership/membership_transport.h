// Transport of membership messages: point-to-point between processes of a job, on connections of
// its own, which are dialed when needed. The control plane's opinion about a process therefore has
// no influence here. Messages may be lost; inside a host the sender can find out that one is not.
//
// Used by one thread, the membership thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_connection.h"
#include "membership/paxos/decision.h"
#include "os/epoll.h"
#include "os/tls_key.h"

namespace ringdist {

// Another process, and the addresses of its control sockets.
struct PeerAddress {
  ProcessId process = 0;
  LinkKind kind = LinkKind::kTcp;  // kLocal: it is on this host
  std::string unix_name;           // empty if it has no AF_UNIX socket
  std::string tcp_address;
  std::string own_ip{};  // source of TCP connections to it; if empty, the kernel chooses

  // Returns the address at which it is dialed.
  const std::string& address() const { return kind == LinkKind::kLocal ? unix_name : tcp_address; }
  // Returns true if one connection serves both. The networks of groups may differ, and inside the
  // host they do not matter.
  bool is_dialed_like(const PeerAddress& other) const {
    return kind == other.kind && address() == other.address() &&
           (kind == LinkKind::kLocal || own_ip == other.own_ip);
  }
};

// The process that has dialed a connection, and what the kernel reports of it.
struct MessageOrigin {
  ProcessId process = 0;  // named by its hello frame, which proves nothing
  LinkKind kind = LinkKind::kTcp;
  std::string ip{};  // over TCP the source of the connection, in the form of without_port()
  pid_t pid = 0;     // inside the host its pid; 0 if that is not visible from here

  // Returns the origin of a connection that was accepted.
  static MessageOrigin of(const Fd& connection, ProcessId process, LinkKind kind);
  bool operator==(const MessageOrigin&) const = default;
};

// Connection from this process to another one. It is dialed when there is a message to send, or to
// find out whether the other process still exists. Used by one thread.
class OutboundConnection {
 public:
  // State of the connection. It is kClosed if nothing was sent so far, or if it broke; the next
  // message dials it. During a dial to another host it is kConnecting, and messages wait in a
  // queue. In kOpen the kernel takes messages, and the other process can read them when it runs.
  //
  // Inside the host kDeserted means that nobody listens there. The process has ended, or has shut
  // ringdist down for good. That state is final.
  enum class State : uint8_t { kClosed, kConnecting, kOpen, kDeserted };

  // Events of the connection are reported by `epoll`, which outlives it, with `key`. With a
  // `tls_key`, which also outlives it, a connection to another host is encrypted, and messages to a
  // process of this host are sealed one by one.
  OutboundConnection(ProcessId self, PeerAddress to, const Epoll& epoll, uint64_t key,
                     const TlsKey* tls_key);
  ~OutboundConnection() { close(); }
  OutboundConnection(const OutboundConnection&) = delete;
  OutboundConnection& operator=(const OutboundConnection&) = delete;

  State state() const { return state_; }
  const PeerAddress& to() const { return to_; }

  // Sends a message about group `group_id`, which shows a process of another host that this one
  // belongs there. Returns true once the kernel has the message, so that the other process receives
  // it even if this process ends. After false it may arrive or not.
  //
  // A `certain` message may fill the socket's buffer; others leave room for certain ones.
  bool send(uint64_t group_id, ConstBytes message, bool certain, TimePoint now);
  // Dials if there is no connection. An end of the other process is then seen at once, or is an
  // event later.
  void look(uint64_t group_id, TimePoint now);
  // Handles an event of the connection.
  void on_event(TimePoint now);
  // Sends what the socket did not take before, redials, and abandons dials that take too long.
  void tick(TimePoint now);
  // Returns when the next redial is due; nothing if none is.
  std::optional<TimePoint> next() const;
  TimePoint used_at() const { return used_at_; }  // last call of send() or look()
  void close();

 private:
  void dial(TimePoint now);
  // Continues a dial. At its end, sends the hello frame, then the queued messages.
  void opened(TimePoint now);
  // Closes after an error; `errno_value` is 0 if the other side closed. Sets the pause before the
  // next dial.
  void fail(int errno_value, TimePoint now);
  // Writes a message to the socket. The result is that of send().
  bool write(ConstBytes message, bool certain, TimePoint now);

  const ProcessId self_;
  const PeerAddress to_;
  const Epoll& epoll_;
  const uint64_t key_;
  const TlsKey* const tls_key_;
  State state_ = State::kClosed;
  std::optional<FramedSocket> stream_;
  std::deque<std::vector<std::byte>> waiting_;  // messages queued while it connects
  bool lost_ = false;  // the connection ended by itself; a redial finds out if the process did, too
  uint64_t group_id_ = 0;  // named by the last message
  TimePoint dialed_at_{};
  Duration pause_{0};  // minimum time between dials
  TimePoint used_at_{};
};

// Outbound connections of a process, and the inbound ones that other processes have dialed.
// Messages travel in one direction of a connection, from the side that dialed.
class MembershipTransport {
 public:
  // Callbacks, from within the functions below.
  class Delegate {
   public:
    virtual ~Delegate() = default;
    // A message has arrived. `message` is valid during the call.
    virtual void on_message(const MessageOrigin& from, ConstBytes message) = 0;
    // Nobody serves the control socket of that process of this host any more; reported once.
    // Messages of it may still wait in the control plane and for take_in().
    virtual void on_deserted(ProcessId process) = 0;
  };

  // Events are reported by `epoll`, which outlives the object, with keys from `first_key` on.
  MembershipTransport(ProcessId self, const Epoll& epoll, uint64_t first_key, Delegate& owner,
                      std::shared_ptr<const TlsKey> tls_key = nullptr);

  // Sends as OutboundConnection::send() does.
  bool send(const PeerAddress& to, uint64_t group_id, ConstBytes message, bool certain,
            TimePoint now);
  // Watches `process` for its end, which on_deserted() then reports. The caller repeats this once a
  // second at least.
  void watch(const PeerAddress& process, uint64_t group_id, TimePoint now);

  // Takes over a connection that process `from` has dialed, and reads it. Returns false if that
  // failed; the messages on it are lost then. Closes the connection that was silent for the longest
  // time if `from` has four, or all processes have 16384.
  bool adopt(FramedSocket stream, const MessageOrigin& from, TimePoint now);
  // Reads all messages of `from`, which has ended, that the kernel has on connections of this host.
  void take_in(ProcessId from, TimePoint now);

  // Handles an event; an unused key is ignored.
  void on_event(uint64_t key, TimePoint now) { on_event(key, kReadsPerEvent, now); }
  // Does the periodic work of all connections, and closes those that are idle or abandoned.
  void tick(TimePoint now);
  // Returns when tick() is due next; nothing if it is not.
  std::optional<TimePoint> next() const;

 private:
  // A connection that another process has dialed.
  struct InboundConnection {
    FramedSocket stream;
    MessageOrigin from;
    TimePoint heard_at;   // last input
    bool proven = false;  // it has brought a message with the seal that it must have
  };

  // Returns the connection to a process, or a new one if there is none or its address has changed.
  OutboundConnection& to(const PeerAddress& address_of);
  // Reports a connection that has become deserted to the delegate, once.
  void update_state(OutboundConnection& line);
  // Makes room for one more connection of `from`. Connections of other hosts, where the kernel
  // names nobody, do not displace those of this host.
  void make_room(const MessageOrigin& from);
  // Reads what has arrived, at most `most` times, and delivers it. Returns false if the connection
  // has ended.
  bool read(InboundConnection& line, int most, TimePoint now);
  // Delivers a message. Returns false, and logs it at most once a second, if it lacks the seal that
  // it must have.
  bool pass_on(InboundConnection& line, ConstBytes message);
  void on_event(uint64_t key, int most_reads, TimePoint now);
  void close(uint64_t key);

  static constexpr int kReadsPerEvent = 64;  // the rest is an event again

  const ProcessId self_;
  const Epoll& epoll_;
  Delegate& delegate_;
  const std::shared_ptr<const TlsKey> tls_key_;
  uint64_t next_key_;
  TimePoint refused_at_{};            // time of the last line about a message without a seal
  std::vector<uint64_t> with_input_;  // keys of connections with input that TLS has read ahead
  std::map<uint64_t, std::unique_ptr<InboundConnection>> incoming_;  // by epoll key
  std::map<uint64_t, ProcessId> keys_;  // epoll key of an outbound connection -> its process
  std::map<ProcessId, std::unique_ptr<OutboundConnection>> outgoing_;
  std::set<ProcessId> told_;  // reported as deserted
};

}  // namespace ringdist
