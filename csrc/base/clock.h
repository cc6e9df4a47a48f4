// Monotonic time. One alias, so that a virtual clock has one place to go.
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

// Longer times count as this one, so that no sum of deadlines overflows.
inline constexpr Milliseconds kLongest = std::chrono::hours(24 * 365 * 100);

// None: for ever.
inline TimePoint deadline_after(std::optional<Milliseconds> limit) {
  return limit ? Clock::now() + std::min(*limit, kLongest) : TimePoint::max();
}

// At least 1, for those to whom 0 means something else.
inline Milliseconds milliseconds_until(TimePoint deadline) {
  return std::max(Milliseconds(1), std::chrono::ceil<Milliseconds>(deadline - Clock::now()));
}

inline double seconds(Duration d) { return std::chrono::duration<double>(d).count(); }

// Deadline of a wait for other ranks. Any thread may move it to an earlier time, or cancel the
// wait.
struct CancellableDeadline {
  CancellableDeadline(TimePoint until) : time(until) {}
  // Moves the deadline to `until`, unless it is earlier already.
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
