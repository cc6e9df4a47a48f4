// History of the control plane: departures of processes, and notices seen so far. Records reach a
// process over several paths and count once; a new connection receives those that are still
// relevant. A process may outlive very many others, so old departures are forgotten.
//
// Plain state without I/O. Control thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "control/control_frames.h"

namespace ringdist {

// Departures and floods.
class ControlHistory {
 public:
  // Record a departure. They return true if none was recorded of that process before; otherwise the
  // first one stays.
  bool record_lost(uint64_t context_id, const std::string& cause);
  bool record_left(uint64_t context_id);

  // Forgets the oldest departures beyond 1024, except those for which `needed` returns true.
  void forget_old(const std::function<bool(uint64_t)>& needed);

  // Returns true if the process was lost or has left.
  bool departed(uint64_t context_id) const { return departures_.contains(context_id); }
  // Returns why the process was lost; nothing if it lives or has left.
  std::optional<std::string> lost(uint64_t context_id) const;
  bool left(uint64_t context_id) const { return departed(context_id) && !lost(context_id); }

  // Records a flood and returns true if it is new. It is then kept for connections to come: for at
  // most a minute, and only among the latest 256 floods and 1 MiB.
  bool record_flood(const FloodRecord& flood, TimePoint now);

  // Returns true if a flood with this number was recorded.
  bool has_flood(uint64_t origin, uint64_t sequence) const;

  // Returns the frames that bring a new connection up to date: at most about 2 MiB, with the newest
  // departures.
  std::vector<std::vector<std::byte>> frames(TimePoint now) const;

  // Returns one line per departure, for a human. Each line ends with a newline.
  std::string describe() const;

 private:
  struct KnownDeparture {
    bool is_lost = false;
    std::string cause;
  };
  // Sequence numbers seen of one process. All below `floor` count as seen. Beyond 65536 processes,
  // those without floods for a minute are forgotten, and floods of others are dropped.
  struct Seen {
    uint64_t floor = 0;
    std::set<uint64_t> above;
    TimePoint heard_at;  // time of its last flood
  };
  // A flood's frame, kept for new connections.
  struct Kept {
    TimePoint at;
    std::vector<std::byte> frame;
  };
  bool record(uint64_t context_id, bool is_lost, const std::string& cause);
  void keep(std::vector<std::byte> frame, TimePoint now);

  std::map<uint64_t, KnownDeparture> departures_;  // by context id
  std::map<uint64_t, uint64_t> by_age_;            // order -> process
  uint64_t next_order_ = 0;
  std::map<uint64_t, Seen> seen_;
  std::deque<Kept> kept_;  // oldest first
  size_t kept_bytes_ = 0;
};

}  // namespace ringdist
