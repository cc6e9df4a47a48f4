// What the ops of a group wait for, in words: for `dump`, and for a warning when it takes long.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "engine/group/peers.h"
#include "engine/group/roll_call.h"
#include "engine/op/op.h"
#include "engine/op/run.h"

namespace ringdist {

// What a group does, for a human: the line that `dump` begins with is that of the highest rank.
struct GroupVerdict {
  enum Rank : uint8_t { kIdle, kRuns, kFailed, kIsAwaited, kWaits };
  Rank rank = kIdle;
  Duration age{0};  // of what runs or waits
  std::string text;

  bool worse_than(const GroupVerdict& other) const {
    return rank != other.rank ? rank > other.rank : age > other.age;
  }
};

class Waits {
 public:
  Waits(const Peers& peers, const RollCall& roll_call) : peers_(peers), roll_call_(roll_call) {}

  // Since when nothing of the op has moved.
  static Duration age(const Op& op, const Run* run, TimePoint now) {
    return now - (run != nullptr ? run->last_progress() : op.started);
  }
  // `ready`: the group's members have been found. `run`: null if it has not begun.
  GroupVerdict verdict(const Op& op, const Run* run, bool ready, TimePoint now) const;
  // Others have called an op, and we have called none after `last`. kIdle if there is none.
  GroupVerdict awaited_here(uint64_t last) const;

 private:
  std::string awaited(const Op& op, const Run* run, bool ready) const;
  std::string awaited_data(const Run& run) const;

  const Peers& peers_;
  const RollCall& roll_call_;
};

}  // namespace ringdist
