// All control connections of a process: it listens, dials, greets, cuts frames, keeps heartbeats
// going, and tells its owner what happens. It knows no groups and judges nobody.
//
// Of two connections between the same pair the one dialed by the lower context id wins, so that
// both sides keep the same one. Owned by ControlPlane; control thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "control/control_connection.h"
#include "control/listeners.h"
#include "os/epoll.h"
#include "os/event_loop.h"

namespace ringdist {

// Connections by the peer that they lead to: everybody's tick asks for each peer's. Owned by
// ConnectionManager; control thread only; no locks.
class ConnectionIndex {
 public:
  // It is known now whom a connection leads to; once.
  void lead_to(uint64_t peer, ControlConnection& connection) {
    connections_[peer].push_back(&connection);
    connection.peer = peer;
  }
  // Before it is freed.
  void forget(const ControlConnection& connection) {
    const auto known = connections_.find(connection.peer);
    if (known == connections_.end()) return;
    std::erase(known->second, &connection);
    if (known->second.empty()) connections_.erase(known);
  }
  // The oldest first.
  std::span<ControlConnection* const> to(uint64_t peer) const {
    const auto known = connections_.find(peer);
    if (known == connections_.end()) return {};
    return known->second;
  }

 private:
  std::map<uint64_t, std::vector<ControlConnection*>> connections_;
};

inline constexpr Duration kControlHeartbeat = Milliseconds(200);

class ConnectionManager final : public ConnectionView, public ConnectionSender {
 public:
  enum class AcceptAction { kAccept, kHold, kRefuse };
  struct AcceptDecision {
    AcceptAction verdict = AcceptAction::kRefuse;
    std::string reason;  // sent to the other side unless empty
  };

  // Calls back from within the calls below. It may dial and close in them.
  struct Delegate {
    virtual ~Delegate() = default;
    virtual AcceptDecision admit(const ControlConnection& connection,
                                 const ControlHello& hello) = 0;
    virtual void on_reached(ControlConnection& connection) = 0;  // held by the other side
    virtual void on_open(ControlConnection& connection) = 0;
    virtual void on_frame(ControlConnection& connection, const Frame& frame) = 0;
    // One that was accepted is for letters: its stream is the owner's from here on.
    virtual void on_letters(ControlConnection& connection, const ControlHello& hello) = 0;
    // A dialed or open connection ended without our doing; errno_value is 0 for an end of stream.
    virtual void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                           const std::string& reason) = 0;
  };

  // A TCP connection on which nothing is confirmed for so long is broken, and can be dialed anew:
  // TCP itself tries again ever more rarely, long after the network is back.
  ConnectionManager(uint64_t my_id, const Epoll& epoll, Delegate& owner, ExceptionGuard& guard,
                    Duration tcp_patience)
      : my_id_(my_id),
        epoll_(epoll),
        delegate_(owner),
        guard_(guard),
        tcp_patience_(tcp_patience) {}

  Error listen(const std::string& unix_name, const std::string& local_ip) {
    return listeners_.listen(unix_name, local_ip);
  }
  void add_listener(Fd tcp) { listeners_.add(std::move(tcp)); }
  const std::string& unix_name() const { return listeners_.unix_name(); }
  const std::string& tcp_address() const { return listeners_.tcp_address(); }

  // The time is this until the next turn.
  void begin_turn(TimePoint now) { now_ = now; }
  // An event of the epoll set. What it throws ends that connection, if it is one.
  void handle(uint64_t key, uint32_t events);
  // Heartbeats and expiry; at least every heartbeat interval. Inside the host they may be rarer.
  void tick(Duration local_heartbeat);
  // Ends what broke and frees what was closed; until then pointers stay good. Once per turn.
  void reap();

  // Also of those that are on their way or end.
  size_t count() const { return connections_.size(); }
  // The open connection to a peer, else one on the way, else null.
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
  void dial(LinkKind kind, uint64_t peer, const std::string& address, uint64_t nonce) override;
  // Asks the owner again about connections whose group was unknown.
  void readmit();

  // ConnectionSender. No on_closed follows; close_after_output lets queued frames out first.
  void for_each(const std::function<void(ControlConnection&)>& fn) override;
  void send(ControlConnection& connection, ConstBytes frame) override;
  void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) override;
  void end_output(ControlConnection& connection) override;
  void close(ControlConnection& connection) override;
  void close_after_output(ControlConnection& connection) override;
  void stop_listening() override { listeners_.stop(); }

  // Takes in what has arrived already. A frame whose handling throws comes again in the next tick,
  // or ends a connection that is not open yet.
  void receive(ControlConnection& connection);
  // A frame waits for the next tick.
  bool stalled() const;
  // Accepts all that processes of this host have dialed so far, and takes in what those say whom
  // it does not know yet. False: not all, for want of descriptors or memory.
  bool drain_connections();

 private:
  ControlConnection& add(Fd fd, LinkKind kind, bool dialed);
  void take_event(uint64_t key, uint32_t events);
  void accept(Fd fd, LinkKind kind, const PeerCredentials& who);
  void make_room(LinkKind kind);
  void limit_patience(const ControlConnection& connection);
  void connected(ControlConnection& connection);
  void read(ControlConnection& connection);
  void take_frames(ControlConnection& connection);
  void dispatch(ControlConnection& connection, const Frame& frame);
  void greet(ControlConnection& connection, const Frame& frame);
  void hand_over(ControlConnection& connection, const ControlHello& hello);
  void answer(ControlConnection& connection);
  bool wins(ControlConnection& incoming);
  void open(ControlConnection& connection);
  void hold(ControlConnection& connection);
  void give_up(ControlConnection& connection);
  void fail(ControlConnection& connection, int errno_value, const std::string& reason);
  void expire(ControlConnection& connection);
  void update_interest(ControlConnection& connection);

  const uint64_t my_id_;
  const Epoll& epoll_;
  Delegate& delegate_;
  ExceptionGuard& guard_;
  const Duration tcp_patience_;
  TimePoint now_{};
  ControlListeners listeners_{epoll_};
  const ControlListeners::Accept accept_ = [this](Fd fd, LinkKind kind,
                                                  const PeerCredentials& who) {
    accept(std::move(fd), kind, who);
  };
  std::map<uint64_t, std::unique_ptr<ControlConnection>> connections_;
  ConnectionIndex by_peer_;      // of those that lead to somebody
  uint64_t next_key_ = 1 << 16;  // lower keys are listeners' and the owner's
};

}  // namespace ringdist
