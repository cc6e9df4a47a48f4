// Does to a world what a scenario says.
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

  // All that is timed; the rest waits for its event.
  void plan(const std::vector<Fault>& faults);
  // What is to happen before that event.
  void before_event(int64_t event);
  bool has_counted() const { return !counted_.empty(); }
  // When the last one has happened and ended, or will have.
  TimePoint last() const { return last_; }
  void note_fault();  // now
  // Everything is healed, and everybody wakes.
  void restore();
  bool loses(int from_host, int to_host) const {
    const auto found = drops_.find({from_host, to_host});
    return found != drops_.end() && found->second > 0;
  }
  // Nothing gets from one host to the other.
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
  std::vector<Fault> counted_;               // the last first
  std::map<std::pair<int, int>, int> cuts_;  // of hosts, how many hold
  std::map<std::pair<int, int>, int> drops_;
  TimePoint last_;
};

}  // namespace ringdist::membership
