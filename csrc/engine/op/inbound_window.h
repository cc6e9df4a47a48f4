// How much each sender of a compressed op may have on its way to us. Where several ranks send to
// one over a slow link, what is on its way beyond what the link delivers in a moment only stands in
// queues: it overflows them and is sent again, and keeps back what is needed sooner. So they share
// what the link delivers in a moment, or in twice the time that a message takes from its grant on.
//
// The rate is the highest of the last samples, since senders that are late or busy only lower it;
// the time is the shortest. Both are of all senders of other hosts together. Lives on a lane.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace ringdist {

class InboundWindow {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  // More than a slow link and a busy processor take to answer, less than routers queue.
  static constexpr Duration kMoment = Milliseconds(20);

  // An op that is to be measured, and its end.
  void begin() { ++ops_; }
  void end(TimePoint now) {
    if (--ops_ > 0) return;
    // What follows is not the link's. An op that ends soon may still tell its rate.
    if (messages_ >= kFewMessages && now - begun_ >= kMoment / 4) record(now);
    messages_ = 0;
  }

  // Part of one has arrived.
  void arrived(size_t bytes, TimePoint now) {
    if (messages_++ == 0) {  // what came first took nobody knows how long
      begun_ = now;
      bytes_ = 0;
      return;
    }
    bytes_ += static_cast<int64_t>(bytes);
    if (now - begun_ >= kMoment) record(now);
  }

  // What a grant allowed has arrived that much later.
  void answered(Duration delay) { shortest_ = std::min(shortest_, delay); }

  // Bytes for each; no limit before the first sample.
  int64_t share(int senders) const {
    const double rate = *std::max_element(rates_.begin(), rates_.end());
    if (rate == 0) return kUnlimited;
    const Duration moment =
        shortest_ == Duration::max() ? kMoment : std::max(kMoment, 2 * shortest_);
    return static_cast<int64_t>(rate * seconds(moment) / senders);
  }

 private:
  static constexpr int64_t kFewMessages = 8;
  static constexpr size_t kSamples = 16;

  void record(TimePoint now) {
    rates_[next_++ % kSamples] = static_cast<double>(bytes_) / seconds(now - begun_);
    begun_ = now;
    bytes_ = 0;
    messages_ = 1;
  }

  std::array<double, kSamples> rates_{};  // bytes per second
  size_t next_ = 0;
  int ops_ = 0;
  int64_t messages_ = 0;  // of the sample that is being taken, the one that began it included
  TimePoint begun_;
  int64_t bytes_ = 0;
  Duration shortest_ = Duration::max();
};

}  // namespace ringdist
