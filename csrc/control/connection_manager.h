// All control connections of a process. Listens, dials, exchanges greetings, splits input into
// frames, sends heartbeats, and reports events to its delegate. It has no information about groups
// and does not decide about failures.
//
// If two connections exist between the same pair of processes, the one dialed by the lower context
// id wins, so that both sides keep the same one. Owned by ControlPlane; control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "control/control_connection.h"
#include "control/handshakes.h"
#include "control/listeners.h"
#include "os/epoll.h"
#include "os/tls_key.h"

namespace ringdist {

// Connections by peer, because each tick looks up the connections of every peer. Owned by
// ConnectionManager. Control thread only; no locks.
class ConnectionIndex {
 public:
  // Sets the peer of a connection, once.
  void lead_to(uint64_t peer, ControlConnection& connection) {
    connections_[peer].push_back(&connection);
    connection.peer = peer;
  }
  // Removes a connection; must be called before it is freed.
  void forget(const ControlConnection& connection) {
    const auto known = connections_.find(connection.peer);
    if (known == connections_.end()) return;
    std::erase(known->second, &connection);
    if (known->second.empty()) connections_.erase(known);
  }
  // Returns the connections to a peer, oldest first.
  std::span<ControlConnection* const> to(uint64_t peer) const {
    const auto known = connections_.find(peer);
    if (known == connections_.end()) return {};
    return known->second;
  }

 private:
  std::map<uint64_t, std::vector<ControlConnection*>> connections_;
};

// Interval of heartbeats between hosts, and of the tick.
inline constexpr Duration kControlHeartbeat = Milliseconds(200);

// The connections of this process. Other parts of the control plane use them through ConnectionView
// and ConnectionSender.
class ConnectionManager final : public ConnectionView, public ConnectionSender {
 public:
  // Answer to a hello. A held connection waits until this process has the group, see readmit().
  enum class AcceptAction { kAccept, kHold, kRefuse };
  struct AcceptDecision {
    AcceptAction action = AcceptAction::kRefuse;
    std::string reason;  // sent to the other side unless empty
  };

  // Receives events of connections, from within the functions below. It may dial and close in them.
  struct Delegate {
    virtual ~Delegate() = default;
    // Decides about a connection that another process has dialed.
    virtual AcceptDecision admit(const ControlConnection& connection,
                                 const ControlHello& hello) = 0;
    virtual void on_reached(ControlConnection& connection) = 0;  // held by the other side
    virtual void on_open(ControlConnection& connection) = 0;     // both sides may send
    // Handles a frame after the greeting, or a request for a dump or a snapshot.
    virtual void on_frame(ControlConnection& connection, const Frame& frame) = 0;
    // An accepted connection is for membership messages. The delegate takes its stream over.
    virtual void on_membership_stream(ControlConnection& connection, const ControlHello& hello) = 0;
    // A process of any host has dialed for messages of a transport; see ControlDelegate.
    virtual void on_data_socket(Stream socket, ConstBytes hello) = 0;
    // A dialed or open connection has ended, and not by a call of close(). errno_value is 0 for an
    // end of stream.
    virtual void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                           const std::string& reason) = 0;
  };

  // A TCP connection breaks when sent data is not confirmed for `tcp_timeout`, and can then be
  // dialed anew. TCP itself retries ever more rarely, long after the network is back. With a
  // `tls_key` all TCP connections are encrypted.
  ConnectionManager(uint64_t my_id, const Epoll& epoll, Delegate& owner, Duration tcp_timeout,
                    std::shared_ptr<const TlsKey> tls_key)
      : my_id_(my_id),
        epoll_(epoll),
        delegate_(owner),
        tcp_timeout_(tcp_timeout),
        tls_key_(std::move(tls_key)) {}

  // Opens the listening sockets; see ControlListeners. With a key, starts the thread for
  // handshakes.
  Error listen(const std::string& unix_name, const std::string& local_ip,
               const Config::PortRange& ports);
  void add_listener(Fd tcp) { listeners_.add(std::move(tcp)); }
  // Ends the thread for handshakes. Afterwards only the destructor may be called.
  void end_handshakes() { handshakes_.reset(); }
  const std::string& unix_name() const { return listeners_.unix_name(); }
  const std::string& tcp_address() const { return listeners_.tcp_address(); }

  // Sets the time for this iteration of the event loop.
  void begin_turn(TimePoint now) { now_ = now; }
  // Handles an event of the epoll set; a key that belongs to no listener and no connection is
  // ignored. After an exception, such as std::bad_alloc, the ControlPlane must be ended.
  void handle(uint64_t key, uint32_t events);
  // Sends heartbeats and ends connections that take too long. To be called at least once per
  // kControlHeartbeat; inside the host heartbeats may be rarer.
  void tick(Duration local_heartbeat);
  // Ends broken connections and frees closed ones, once per iteration. Until then pointers stay
  // valid.
  void reap();

  // Returns the number of connections, including those that are connecting or closing.
  size_t count() const { return connections_.size(); }
  // Returns the open connection to a peer, else one on its way, else null.
  ControlConnection* find(uint64_t peer, LinkKind kind) const;

  // ConnectionView
  bool is_connecting_or_open(uint64_t peer, LinkKind kind) const override {
    return find(peer, kind) != nullptr;
  }
  bool reached(uint64_t peer, LinkKind kind) const override {
    const ControlConnection* found = find(peer, kind);
    return found != nullptr && found->reached();
  }
  bool open(uint64_t peer, LinkKind kind) const override {
    const ControlConnection* found = find(peer, kind);
    return found != nullptr && found->open();
  }
  void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce,
            const std::string& source) override;
  // Calls admit() again for held connections, after a group was added.
  void readmit();

  // ConnectionSender. on_closed() does not follow. close_after_output() sends queued frames first.
  void for_each(const std::function<void(ControlConnection&)>& fn) override {
    for (auto& [key, c] : connections_)
      if (!c->closed()) fn(*c);
  }
  void send(ControlConnection& connection, ConstBytes frame) override;
  void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) override {
    for (auto& [key, c] : connections_)
      if (c->open() && c.get() != except) send(*c, frame);
  }
  void end_output(ControlConnection& connection) override {
    if (!connection.stream.has_output()) connection.stream.end_output();
  }
  void close(ControlConnection& connection) override;
  void close_after_output(ControlConnection& connection) override;
  void stop_listening() override { listeners_.stop(); }

  // Reads a limited amount of the input that has arrived, and handles the frames in it.
  void receive(ControlConnection& connection);
  // Accepts all connections that processes of this host have dialed so far, and handles the
  // greetings on them. Returns false if descriptors did not suffice for all.
  bool drain_connections();

 private:
  // Creates a connection in state kGreeting.
  ControlConnection& add(Stream socket, LinkKind kind, bool dialed);
  // Handles a connection that another process has dialed. With a key, handshakes come first: those
  // of TCP on a thread of their own.
  void accept(Fd fd, LinkKind kind, const PeerCredentials& who);
  void accept(Stream socket, LinkKind kind, const PeerCredentials& who);
  // Goes on with connections after their handshakes, and with input that TLS has read ahead.
  void on_handshakes();
  // Closes the oldest strangers, which are connections not admitted so far, when process `pid` has
  // many. Those of other hosts, and of local processes that are not visible, have pid 0.
  void make_room(LinkKind kind, int pid);
  // Applies `tcp_timeout` to a TCP connection.
  void limit_tcp_timeout(const ControlConnection& connection);
  // Handles the end of a connect. Runs the handshake if there is a key, then greets.
  void connected(ControlConnection& connection);
  // Sends the hello.
  void begin_greeting(ControlConnection& connection);
  // Lets a connection of this host be plain if it begins so: only a membership hello may come on
  // it.
  void expect_plain(ControlConnection& connection);
  // Logs why TLS refused a stranger, at most once a second.
  void log_refused(const ControlConnection& connection, const std::string& why);
  void take_frames(ControlConnection& connection);
  // Passes a frame to the greeting or to the delegate.
  void dispatch(ControlConnection& connection, const Frame& frame);
  // Handles a frame on a connection that is not open.
  void greet(ControlConnection& connection, const Frame& frame);
  // Passes the stream of a connection for membership messages to the delegate.
  void hand_over(ControlConnection& connection, const ControlHello& hello);
  // Passes the socket of a connection for messages of a transport to the delegate.
  void hand_over_data(ControlConnection& connection, ConstBytes hello);
  // Decides about a connection that has sent its hello.
  void answer(ControlConnection& connection);
  // Returns true if `incoming` replaces the other connections to its peer, which are then closed.
  bool wins(ControlConnection& incoming);
  // These two enter kOpen, and kHeld on the accepting side.
  void open(ControlConnection& connection);
  void hold(ControlConnection& connection);
  // Closes a connection and reports that to the delegate.
  void fail(ControlConnection& connection, int errno_value, const std::string& reason);
  // Ends a connection that has stayed too long in its state.
  void expire(ControlConnection& connection);
  // Makes epoll report when the socket can send, while output is buffered.
  void update_interest(ControlConnection& connection);

  const uint64_t my_id_;
  const Epoll& epoll_;
  Delegate& delegate_;
  const Duration tcp_timeout_;
  const std::shared_ptr<const TlsKey> tls_key_;
  std::unique_ptr<Handshakes> handshakes_;  // with a key
  TimePoint now_{};
  TimePoint logged_at_{};  // time of the last line of log_refused()
  ControlListeners listeners_{epoll_};
  const ControlListeners::Accept accept_ = [this](Fd fd, LinkKind kind,
                                                  const PeerCredentials& who) {
    accept(std::move(fd), kind, who);
  };
  std::map<uint64_t, std::unique_ptr<ControlConnection>> connections_;  // by key, thus by age
  ConnectionIndex by_peer_;  // connections with a peer; accepted ones have none before the hello
  uint64_t next_key_ = 1 << 16;  // lower keys belong to listeners and to the owner
};

}  // namespace ringdist
