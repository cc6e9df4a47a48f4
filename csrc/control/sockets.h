// All control connections of a process: it listens, dials, greets, cuts frames, keeps heartbeats
// going, and tells its owner what happens. It knows no groups and judges nobody.
//
// Of two connections between the same pair the one dialed by the lower context id wins, so that
// both sides keep the same one. Owned by ControlPlane; control thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "control/guard.h"
#include "control/peer_index.h"
#include "control/reach.h"
#include "control/voice.h"
#include "os/epoll.h"

namespace ringdist {

inline constexpr Duration kControlHeartbeat = Milliseconds(200);

class ControlSockets final : public ControlReach, public ControlVoice {
 public:
  enum class Verdict { kAccept, kHold, kRefuse };
  struct Admission {
    Verdict verdict = Verdict::kRefuse;
    std::string reason;  // sent to the other side unless empty
  };

  // Calls back from within the calls below. It may dial and close in them.
  struct Owner {
    virtual ~Owner() = default;
    virtual Admission admit(const ControlConnection& connection, const Hello& hello) = 0;
    virtual void on_reached(ControlConnection& connection) = 0;  // held by the other side
    virtual void on_open(ControlConnection& connection) = 0;
    virtual void on_frame(ControlConnection& connection, const Frame& frame) = 0;
    // One that was accepted is for letters: its stream is the owner's from here on.
    virtual void on_letters(ControlConnection& connection, const Hello& hello) = 0;
    // A dialed or open connection ended without our doing; errno_value is 0 for an end of stream.
    virtual void on_closed(const ControlConnection& connection, bool was_reached, int errno_value,
                           const std::string& reason) = 0;
  };

  ControlSockets(uint64_t my_id, const Epoll& epoll, Owner& owner, ControlGuard& guard)
      : my_id_(my_id), epoll_(epoll), owner_(owner), guard_(guard) {}

  Error listen(const std::string& unix_name, const std::string& local_ip);
  const std::string& unix_name() const { return unix_name_; }
  const std::string& tcp_address() const { return tcp_address_; }

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

  // ControlReach
  bool tried(uint64_t peer, LinkKind kind) const override { return find(peer, kind) != nullptr; }
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

  // ControlVoice. No on_closed follows; close_after_output lets queued frames out first.
  void for_each(const std::function<void(ControlConnection&)>& fn) override;
  void send(ControlConnection& connection, ConstBytes frame) override;
  void send_to_all(ConstBytes frame, const ControlConnection* except = nullptr) override;
  void end_output(ControlConnection& connection) override;
  void close(ControlConnection& connection) override;
  void close_after_output(ControlConnection& connection) override;
  void stop_listening() override;

  // Takes in what has arrived already. A frame whose handling throws comes again in the next tick,
  // or ends a connection that is not open yet.
  void receive(ControlConnection& connection);
  // A frame waits for the next tick.
  bool stalled() const;
  // Accepts all that processes of this host have dialed so far, and takes in what those say whom
  // it does not know yet. False: not all, for want of descriptors or memory.
  bool sweep();

 private:
  struct Listener {
    Fd fd;
    LinkKind kind;
    bool muted = false;  // accept failed for want of descriptors: try again at the next tick
  };

  ControlConnection& add(Fd fd, LinkKind kind, bool dialed);
  void take_event(uint64_t key, uint32_t events);
  // True: there may be more.
  bool accept_all(Listener& listener);
  void make_room(LinkKind kind);
  void connected(ControlConnection& connection);
  void read(ControlConnection& connection);
  void take_frames(ControlConnection& connection);
  void dispatch(ControlConnection& connection, const Frame& frame);
  void greet(ControlConnection& connection, const Frame& frame);
  void hand_over(ControlConnection& connection, const Hello& hello);
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
  Owner& owner_;
  ControlGuard& guard_;
  TimePoint now_{};
  std::string unix_name_;
  std::string tcp_address_;
  std::map<uint64_t, Listener> listeners_;
  std::map<uint64_t, std::unique_ptr<ControlConnection>> connections_;
  ControlPeerIndex by_peer_;  // of those that lead to somebody
  bool told_ = false;         // that descriptors are lacking
  uint64_t next_key_ = 16;    // lower keys are listeners' and the owner's
};

}  // namespace ringdist
