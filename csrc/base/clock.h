// Monotonic time: aliases of steady_clock, deadlines, and a deadline that other threads can move or
// cancel. All code takes its time from these aliases, so that a virtual clock would need a change
// in one place only.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>

namespace ringdist {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;
using Milliseconds = std::chrono::milliseconds;

// Upper limit for timeouts: 100 years. Longer ones are reduced to it, so that no sum of deadlines
// overflows.
inline constexpr Milliseconds kLongest = std::chrono::hours(24 * 365 * 100);

// Returns the time at which a wait of `limit` from the present ends. If there is no limit, it
// returns TimePoint::max().
inline TimePoint deadline_after(std::optional<Milliseconds> limit) {
  return limit ? Clock::now() + std::min(*limit, kLongest) : TimePoint::max();
}

// Returns the time left until `deadline`, rounded up to a millisecond. It is at least 1 ms, because
// 0 means "no timeout" or "do not wait" to some of the functions that take the result.
inline Milliseconds milliseconds_until(TimePoint deadline) {
  return std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(deadline - Clock::now()));
}

// Converts a duration to seconds.
inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Deadline of a wait for other ranks. Any thread may move it to an earlier time or cancel the wait;
// the waiting thread polls it.
struct CancellableDeadline {
  CancellableDeadline(TimePoint until) : time(until) {}  // NOLINT(google-explicit-constructor)
  // Moves the deadline to `until`, unless it is already earlier. If threads race, the earliest time
  // wins.
  void shorten(TimePoint until) {
    TimePoint now = time;
    while (until < now && !time.compare_exchange_weak(now, until)) {
    }
  }
  bool expired(TimePoint now) const { return now >= time.load(); }
  bool expired_or_cancelled(TimePoint now) const { return cancelled || expired(now); }

  std::atomic<TimePoint> time;
  std::atomic<bool> cancelled{false};
};

}  // namespace ringdist
