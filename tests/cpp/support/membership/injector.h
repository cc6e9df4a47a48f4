// Applies the faults of a Scenario to a World.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "support/membership/scenario.h"

namespace ringdist::membership {

class World;

class Injector {
 public:
  explicit Injector(World& world) : world_(world) {}

  // Schedules the faults that have a time. Faults that have an event number wait for
  // before_event().
  void plan(const std::vector<Fault>& faults);
  // Applies the faults that are to happen before event number `event`.
  void before_event(int64_t event);
  bool has_counted() const { return !counted_.empty(); }
  // Returns the time at which the last fault so far ends.
  TimePoint last() const { return last_; }
  void note_fault();  // records that a fault happens at the current time
  // Heals all cuts and wakes all stopped processes.
  void restore();
  bool loses(int from_host, int to_host) const {
    const auto found = drops_.find({from_host, to_host});
    return found != drops_.end() && found->second > 0;
  }
  // True if no message gets from the one host to the other.
  bool is_cut(int from_host, int to_host) const { return cuts_.contains({from_host, to_host}); }

 private:
  void apply(const Fault& fault);
  void stop(int index, Duration lasts);
  void give_up(int index, int other);
  void resume(int index);
  void cut(int from_host, int to_host, bool both, Duration lasts);
  void drop(int host, int other, Duration lasts);
  void join(int host);

  World& world_;
  std::vector<Fault> counted_;               // faults by event number, the last one first
  std::map<std::pair<int, int>, int> cuts_;  // by pair of hosts: number of cuts in effect
  std::map<std::pair<int, int>, int> drops_;
  TimePoint last_;
};

}  // namespace ringdist::membership
