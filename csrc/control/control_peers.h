// Peers of the control plane: the other processes that this one is or was connected to, with the
// state of their links and of their ends. Plain state and pidfds, no other I/O. Control thread
// only; no locks.
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

// One kind of link to a peer, as this side sees it: when to dial it, when something last arrived on
// it, and why it failed. A link outlives its connections. The time is an argument.
class PeerLink {
 public:
  // Nobody needs a link that is kIdle. A kMissing one is needed but has no connection so far. A
  // kJoined one had a connection that neither side gave up: its silence counts, and if it ends, the
  // reason is investigated.
  enum class State : uint8_t {
    kIdle,
    kMissing,
    kJoined,
  };

  State state() const { return state_; }
  bool joined() const { return state_ == State::kJoined; }

  // Records that the link is needed: idle -> missing.
  void want(TimePoint now);
  // Returns true if this side may dial now. The link must not be idle. `first` means that it is for
  // this side to dial. The other side dials only if nothing comes for a while, or if there was a
  // connection before.
  bool may_dial(bool first, TimePoint now) const;
  // Records a dial, which delays the next one.
  void dialed(TimePoint now);
  // Records a connection: -> joined. Earlier failures are forgotten.
  void connected(TimePoint now);
  void heard(TimePoint now) { heard_ = now; }  // something has arrived
  // Records a failed dial; errno_value is that of ConnectionManager::Delegate.
  void failed(int errno_value, const std::string& reason);
  // Records the end of a connection: joined -> idle if it was `given_up`. Otherwise the link may be
  // dialed again at once.
  void ended(bool given_up, int errno_value, const std::string& reason, TimePoint now);
  // Resets a link that is not joined, when a new attempt begins: missing -> idle. Earlier failures
  // have no meaning for that attempt.
  void forget_failures();
  // Forgets refusals and rejections when a new host proof begins, for the same reason.
  void forget_refusals();
  // Compensates for a pause of this thread, during which the peer was not silent.
  void discount_pause(Duration pause, TimePoint now);

  // Returns when something last arrived, or nothing if that never happened.
  std::optional<TimePoint> last_heard() const { return heard_; }
  // Returns the time since then. The link must be joined.
  Duration silence(TimePoint now) const;
  // Returns true if the kernel has refused a dial (ECONNREFUSED), so that nobody listened.
  bool refused() const { return refusals_ > 0; }
  // Returns true if that has happened so often since the last connection that nobody ever will
  // listen there again.
  bool deserted() const { return refusals_ >= 3; }
  // Returns why the process itself has refused the connection; empty if it has not.
  const std::string& rejection() const { return rejection_; }
  // Returns why the last dial failed, or why the last connection ended.
  const std::string& failure() const { return failure_; }

 private:
  State state_ = State::kIdle;
  std::optional<TimePoint> heard_;
  TimePoint missing_since_{};  // while it is kMissing
  TimePoint retry_at_{};       // earliest next dial
  int refusals_ = 0;           // since the last connection or forget_refusals()
  std::string rejection_;
  std::string failure_;
};

// All that this process has recorded about another one.
struct ControlPeer {
  // Returns the link of that kind, which exists from the start, in kIdle.
  PeerLink& link(LinkKind kind) { return lines[static_cast<size_t>(kind)]; }
  const PeerLink& link(LinkKind kind) const { return lines[static_cast<size_t>(kind)]; }

  // Records the announcement that the process is about to end. No heartbeats follow, and its end
  // does not count as a death.
  void exits(TimePoint now) { exits_since_ = now; }
  bool exiting() const { return exits_since_.has_value(); }
  // Returns the time since that announcement, which must have been made.
  Duration exiting_for(TimePoint now) const;

  int pid = 0;            // 0 if not visible from here
  Fd pidfd;               // its end is watched through this
  bool proven = false;    // host proof done or under way; false again once a group needs it
  std::string unix_name;  // address for the host proof
  PeerLink lines[2];      // by LinkKind

 private:
  std::optional<TimePoint> exits_since_;
};

// All peers by context id.
class ControlPeerTable {
 public:
  // Ends of processes that can be watched are events of `epoll`, which outlives the table.
  explicit ControlPeerTable(const Epoll& epoll) : epoll_(epoll) {}

  // Returns the peer, which is created if there is none. References and pointers to peers are valid
  // until forget().
  ControlPeer& operator[](uint64_t id) { return peers_[id]; }
  // Returns the peer, or null if there is none.
  ControlPeer* find(uint64_t id);
  const ControlPeer* find(uint64_t id) const;
  // Returns true if the process has announced its end.
  bool exiting(uint64_t id) const;
  // Returns a copy of all ids, for loops that change the table.
  std::vector<uint64_t> ids() const;
  const std::map<uint64_t, ControlPeer>& all() const { return peers_; }

  // Makes the end of process `pid` an event, if it is visible from here. Another process that was
  // watched as this peer is so no more.
  void watch_exit(uint64_t id, int pid);
  // Returns the peer that has ended, if `key` is that of such an event.
  std::optional<uint64_t> ended(uint64_t key) const;
  void forget(uint64_t id);

  // Resets the links of all peers that are not joined; see PeerLink::forget_failures().
  void forget_failures();
  // Compensates for a pause of this thread, during which no peer was silent.
  void discount_pause(Duration pause, TimePoint now);

 private:
  void unwatch(uint64_t id, ControlPeer& peer);

  const Epoll& epoll_;
  std::map<uint64_t, ControlPeer> peers_;
  std::map<uint64_t, uint64_t> exits_;  // epoll key of a pidfd -> peer
  uint64_t next_exit_key_ = uint64_t{1} << 40;
};

}  // namespace ringdist
