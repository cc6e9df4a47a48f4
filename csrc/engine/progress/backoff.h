// Decides how a lane waits when there is nothing to do: poll again, yield the core, or sleep until
// an event.
//
// A sleep costs two system calls and the time that a core takes to wake up, so polling is better if
// the next event is near. But the event may only come once another thread has had this core. The
// duration of a yield shows which case it is. No time passes if no other thread wants the core, and
// a little if it is another rank that also waits. A whole time slice passes if the other thread
// never gives the core back by itself. From such a thread a sleeper gets the core back at once,
// while a spinner keeps it for a while.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace ringdist {

// State of one lane's wait. It learns from the duration of yields whether the core is shared.
class Backoff {
 public:
  // Action for the next iteration.
  enum class Next : uint8_t { kPoll, kYield, kSleep };
  // Use of the core by other threads, as observed by yields.
  enum class Core : uint8_t {
    kOurs,    // no other thread wants it
    kShared,  // another thread uses it and soon gives it back
    kTaken,   // another thread uses it and does not give it back
  };

  // Kind of event that the lane waits for.
  enum class Wait : uint8_t {
    kNothing,  // nothing is in flight, or can be yet
    kNear,     // messages of ranks of this host only
    kFar,      // messages of ranks of other hosts, too
  };

  // Polling time; about the cost of a sleep.
  static constexpr Duration kSpin = std::chrono::microseconds(20);
  static constexpr Duration kStay =
      std::chrono::milliseconds(1);  // time before a sleep, while the core is available
  // The same for kFar: about the round trip of a short message. Longer messages arrive one by one,
  // and polling for each would take a core that others compute on.
  static constexpr Duration kStayFar = std::chrono::microseconds(100);
  // A shorter yield means that no other thread wanted the core.
  static constexpr Duration kSwitch = std::chrono::microseconds(2);
  // A longer yield means a lost time slice; shorter than the slice of any system.
  static constexpr Duration kSlice = std::chrono::microseconds(200);
  // Short yields in a row until a shared core counts as ours.
  static constexpr int kQuietYields = 16;
  static constexpr int kMostProbes = 6;  // doublings of the time until the next probe

  // Starts a wait, or restarts it after an event.
  void begin(TimePoint now) { since_ = now; }
  // Returns the action for an iteration without an event.
  Next next(TimePoint now, Wait wait) const;
  // Records that a yield took `took` and ended at `now`.
  void yielded(Duration took, TimePoint now);

  Core core() const { return core_; }

 private:
  Core core_ = Core::kOurs;
  TimePoint since_;
  int quiet_yields_ = 0;  // short yields in a row
  int slices_ = 0;        // time slices lost in a row
  TimePoint probe_at_;    // when to yield again to find out whether a taken core still is
};

}  // namespace ringdist
