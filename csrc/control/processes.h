// The other processes that this one is, or was, connected to: what is known of their links and of
// their end. Control thread only; no locks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/connection.h"
#include "os/epoll.h"
#include "os/fd.h"

namespace ringdist {

struct ControlPeer {
  // One per kind of link.
  struct Line {
    bool reached = false;  // was connected, and neither side gave it up
    TimePoint heard{};
    TimePoint wanted{};     // since when it has been missing
    TimePoint retry_at{};   // next dial
    int refusals = 0;       // by the kernel, in a row: nobody listens there
    std::string rejection;  // by the process itself
    std::string failure;    // of the last dial

    bool deserted() const { return refusals >= 3; }
    void connected(TimePoint now) {
      *this = Line();
      reached = true;
      heard = now;
    }
    // A dial failed, or a connection ended; errno_value as of ControlSockets::Owner.
    void failed(int errno_value, const std::string& reason);
    // What went wrong before says nothing about the next dial.
    void forget_failures() {
      if (!reached) *this = Line();
    }
  };

  Line& line(LinkKind kind) { return lines[static_cast<size_t>(kind)]; }
  const Line& line(LinkKind kind) const { return lines[static_cast<size_t>(kind)]; }
  bool exiting() const { return exits_since != TimePoint(); }
  void exits(TimePoint now) { exits_since = now; }

  int pid = 0;
  Fd pidfd;
  TimePoint exits_since{};  // its process is about to end
  bool proven = false;      // to share our host: kept until a group has used it
  std::string unix_name;    // as given with the proof
  Line lines[2];
};

class ControlProcesses {
 public:
  // Ends of processes that can be watched are events of `epoll`.
  explicit ControlProcesses(const Epoll& epoll) : epoll_(epoll) {}

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
  void forgive(Duration pause, TimePoint now);

 private:
  const Epoll& epoll_;
  std::map<uint64_t, ControlPeer> peers_;
  std::map<uint64_t, uint64_t> exits_;  // epoll key of a pidfd -> peer
  uint64_t next_exit_key_ = uint64_t{1} << 40;
};

// `time`, if there is one, moved by a pause that ends now.
void forgive_pause(TimePoint& time, Duration pause, TimePoint now);

}  // namespace ringdist
