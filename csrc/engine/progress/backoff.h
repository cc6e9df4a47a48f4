// What whoever drives a lane does when there is nothing to do: looks again, lets others have the
// core, or sleeps until it is woken.
//
// A sleep costs two system calls and the time that a core takes to wake up, so that an answer that
// is near is better looked for. But it may be near only once somebody else has had this core. Who
// that is, is told by how long a yield takes: nothing, if nobody wants the core; a little, if it is
// another rank that waits as we do; a time slice, if it is somebody who never gives it back by
// itself. From such a one a sleeper gets the core back at once, and a spinner keeps it for a while.
//
// With the lane's driver token held.
#pragma once

#include <chrono>
#include <cstdint>

#include "base/clock.h"

namespace ringdist {

class Backoff {
 public:
  enum class Next : uint8_t { kPoll, kYield, kSleep };
  enum class Core : uint8_t {
    kOurs,    // nobody else wants it
    kShared,  // with somebody who soon gives it back
    kTaken,   // with somebody who does not
  };

  // What is waited for.
  enum class Wait : uint8_t {
    kNothing,  // nothing is in flight, or can be yet
    kNear,     // other ranks of this host
    kFar,      // those of other hosts, too
  };

  static constexpr Duration kSpin = std::chrono::microseconds(20);  // about what a sleep costs
  static constexpr Duration kStay =
      std::chrono::milliseconds(1);  // awake, while a core is to be had
  // The same where a wire is between: a short message's way there and back. Longer ones come one by
  // one, and whoever looked for each would take a core that others compute on.
  static constexpr Duration kStayFar = std::chrono::microseconds(100);
  static constexpr Duration kSwitch = std::chrono::microseconds(2);   // to another and back
  static constexpr Duration kSlice = std::chrono::microseconds(200);  // less than anybody's
  static constexpr int kQuietYields = 16;
  static constexpr int kMostProbes = 6;  // doublings

  // A wait begins, or something has happened.
  void begin(TimePoint now) { since_ = now; }
  // Nothing has.
  Next next(TimePoint now, Wait wait) const;
  // It has yielded, for so long, until now.
  void yielded(Duration took, TimePoint now);

  Core core() const { return core_; }

 private:
  Core core_ = Core::kOurs;
  TimePoint since_;
  int quiet_yields_ = 0;  // in a row
  int slices_ = 0;        // lost in a row
  TimePoint probe_at_;    // of a core that is taken: when to see whether it still is
};

}  // namespace ringdist
