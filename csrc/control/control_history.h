// What the control plane remembers: who was lost or left, and which floods it has seen. Records
// reach a process over several paths and count once; a new connection is told of them. A process
// may outlive very many others: old fates are forgotten. A plain value of the control thread,
// without I/O.
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

class ControlHistory {
 public:
  // True if nothing was known about that process before; the first fate stays.
  // What throws has recorded nothing, here and below.
  bool record_lost(uint64_t context_id, const std::string& cause);
  bool record_left(uint64_t context_id);

  // Of whom the owner has not been told yet: the oldest.
  std::optional<uint64_t> unreported() const;
  void told(uint64_t context_id);

  // Forgets the oldest fates beyond a thousand, but none that is untold or of a process that is
  // `needed`.
  void forget_old(const std::function<bool(uint64_t)>& needed);

  bool departed(uint64_t context_id) const { return departures_.contains(context_id); }
  // Why it was lost; nothing if it lives or left.
  std::optional<std::string> lost(uint64_t context_id) const;
  bool left(uint64_t context_id) const { return departed(context_id) && !lost(context_id); }

  // True if this flood is new; it is then kept for a while for connections to come.
  bool record_flood(const FloodRecord& flood, TimePoint now);

  // The frames that bring a new connection up to date: at most about 2 MiB, the newest fates.
  std::vector<std::vector<std::byte>> frames(TimePoint now) const;

  std::string describe() const;

 private:
  struct KnownDeparture {
    bool is_lost = false;
    std::string cause;
    bool told = false;
  };
  // Sequence numbers seen from one process; what lies below `floor` is old.
  struct Seen {
    uint64_t floor = 0;
    std::set<uint64_t> above;
  };
  struct Kept {
    TimePoint at;
    std::vector<std::byte> frame;
  };
  bool record(uint64_t context_id, bool is_lost, const std::string& cause);
  void keep(std::vector<std::byte> frame, TimePoint now);

  std::map<uint64_t, KnownDeparture> departures_;
  std::map<uint64_t, uint64_t> by_age_;  // order -> process
  uint64_t next_order_ = 0;
  size_t unreported_ = 0;
  std::map<uint64_t, Seen> seen_;
  std::deque<Kept> kept_;
  size_t kept_bytes_ = 0;
};

// "0123456789abcdef"
std::string format_id(uint64_t id);

}  // namespace ringdist
