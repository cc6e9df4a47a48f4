// The other processes that this one is, or was, connected to: what is known of their links and of
// their end. Control thread only; no locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_connection.h"
#include "os/epoll.h"
#include "os/fd.h"

namespace ringdist {

// One kind of link to a process, as this side sees it.
class PeerLink {
 public:
  enum class State : uint8_t {
    kIdle,     // nobody asks for it
    kMissing,  // somebody does, and it is not there
    kJoined,   // it was there, and neither side gave it up: silence counts, and its end is looked
               // into
  };

  State state() const { return state_; }
  bool joined() const { return state_ == State::kJoined; }

  // It is asked for: idle -> missing.
  void want(TimePoint now);
  // Of one that is not idle: whether to dial now. `first`: it is for this side to dial; the other
  // side does if nothing comes for a while, or where a connection was before.
  bool may_dial(bool first, TimePoint now) const;
  void dialed(TimePoint now);
  // -> joined. What failed before is forgotten.
  void connected(TimePoint now);
  void heard(TimePoint now) { heard_ = now; }
  // A dial failed; errno_value as of ConnectionManager::Delegate.
  void failed(int errno_value, const std::string& reason);
  // A connection ended: joined -> idle if it was `given_up`; otherwise it is dialed at once.
  void ended(bool given_up, int errno_value, const std::string& reason, TimePoint now);
  // What went wrong before says nothing about what begins now: missing -> idle.
  void forget_failures();
  // Nor about the next proof.
  void forget_refusals();
  // This thread did not run for so long: the other side was not silent then.
  void discount_pause(Duration pause, TimePoint now);

  // When something came last; nothing if nothing did.
  std::optional<TimePoint> last_heard() const { return heard_; }
  // Of one that is joined.
  Duration silence(TimePoint now) const;
  // By the kernel: nobody listens there; and for so long that nobody will.
  bool refused() const { return refusals_ > 0; }
  bool deserted() const { return refusals_ >= 3; }
  // By the process itself; empty if it was not.
  const std::string& rejection() const { return rejection_; }
  // Of the last dial or connection.
  const std::string& failure() const { return failure_; }

 private:
  State state_ = State::kIdle;
  std::optional<TimePoint> heard_;
  TimePoint missing_since_{};  // unless it is idle
  TimePoint retry_at_{};       // next dial
  int refusals_ = 0;           // in a row
  std::string rejection_;
  std::string failure_;
};

struct ControlPeer {
  PeerLink& link(LinkKind kind) { return lines[static_cast<size_t>(kind)]; }
  const PeerLink& link(LinkKind kind) const { return lines[static_cast<size_t>(kind)]; }

  // It has said that its process is about to end: no heartbeats follow, and its end is no death.
  void exits(TimePoint now) { exits_since_ = now; }
  bool exiting() const { return exits_since_.has_value(); }
  // Since it said so.
  Duration exiting_for(TimePoint now) const;

  int pid = 0;
  Fd pidfd;
  bool proven = false;    // to share our host, or about to be: until a group needs it
  std::string unix_name;  // as given with the proof
  PeerLink lines[2];

 private:
  std::optional<TimePoint> exits_since_;
};

class ControlPeerTable {
 public:
  // Ends of processes that can be watched are events of `epoll`.
  explicit ControlPeerTable(const Epoll& epoll) : epoll_(epoll) {}

  ControlPeer& operator[](uint64_t id) { return peers_[id]; }
  // Null if nothing is known of it.
  ControlPeer* find(uint64_t id);
  const ControlPeer* find(uint64_t id) const;
  bool exiting(uint64_t id) const;
  std::vector<uint64_t> ids() const;
  const std::map<uint64_t, ControlPeer>& all() const { return peers_; }

  // The end of `pid` will be an event, if the process is visible from here.
  void watch_exit(uint64_t id, int pid);
  // Whose end an event of that key is.
  std::optional<uint64_t> ended(uint64_t key) const;
  void forget(uint64_t id);

  // Earlier failures are no news for what begins now.
  void forget_failures();
  // This thread did not run for so long: others were not silent then.
  void discount_pause(Duration pause, TimePoint now);

 private:
  const Epoll& epoll_;
  std::map<uint64_t, ControlPeer> peers_;
  std::map<uint64_t, uint64_t> exits_;  // epoll key of a pidfd -> peer
  uint64_t next_exit_key_ = uint64_t{1} << 40;
};

}  // namespace ringdist
