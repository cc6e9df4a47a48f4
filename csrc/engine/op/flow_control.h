// Flow control, in bytes.
//
// Early credit, per (group, ordered pair): what a sender may send before the receiver has granted
// the edge - so also before it has called the op. The receiver parks at most this much, and gives
// credit back as it consumes; the count of bytes consumed so far rides on every message to the
// sender.
//
// Promises, per Context: what receivers have granted and not yet consumed. Bounded by
// RINGDIST_MEMORY; beyond it only the one slot per edge of each group's oldest unfinished op is
// granted, which keeps everything going whatever the limit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace ringdist {

class EagerCredit {
 public:
  explicit EagerCredit(int64_t window) : window_(window) {}

  // The window of a pair, in segments: enough that an edge's first grant is back before it is used
  // up (measured at 1 MiB on two ranks: with two segments the third waited, 10 % of the op).
  static constexpr int64_t kSegments = 4;

  // Small messages cost this much, so that their number is bounded, too.
  static constexpr int64_t kMinimumCharge = 512;
  static int64_t charge(size_t payload) {
    return std::max<int64_t>(kMinimumCharge, static_cast<int64_t>(payload));
  }

  // As a sender.
  bool allows(size_t payload) const {
    return outstanding() == 0 || outstanding() + charge(payload) <= window_;
  }
  void sent(size_t payload) { sent_ += charge(payload); }
  // The receiver says how much it has consumed in all. True if that frees anything.
  bool returned(uint64_t consumed_in_all) {
    const auto total = static_cast<int64_t>(consumed_in_all);
    if (total <= returned_ || total > sent_) return false;  // old news, or nonsense
    returned_ = total;
    return true;
  }
  int64_t outstanding() const { return sent_ - returned_; }

  // As a receiver.
  void consumed(size_t payload) { consumed_ += charge(payload); }
  uint64_t report() {
    reported_ = consumed_;
    return static_cast<uint64_t>(consumed_);
  }
  // Nothing has carried the count for so long that the sender may be waiting.
  bool must_report() const { return consumed_ - reported_ >= window_ / 2; }

 private:
  int64_t window_;
  int64_t sent_ = 0;
  int64_t returned_ = 0;
  int64_t consumed_ = 0;
  int64_t reported_ = 0;
};

class GrantBudget {
 public:
  explicit GrantBudget(int64_t limit) : limit_(limit) {}

  bool fits(int64_t bytes) const { return granted_ + bytes <= limit_; }
  void change(int64_t bytes) { granted_ += bytes; }
  int64_t granted() const { return granted_; }
  int64_t limit() const { return limit_; }

 private:
  int64_t limit_;
  int64_t granted_ = 0;
};

// How much each sender of a compressed op may have on its way to us. Where several ranks send to
// one over a slow link, what is on its way beyond what the link delivers in a moment only stands in
// queues: it overflows them and is sent again, and keeps back what is needed sooner. So they share
// what the link delivers in a moment, or in twice the time that a message takes from its grant on.
//
// The rate is the highest of the last samples, since senders that are late or busy only lower it;
// the time is the shortest. Both are of all senders of other hosts together. Lives on a lane.
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
