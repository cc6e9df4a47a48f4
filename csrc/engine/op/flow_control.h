// Flow control between ranks, in bytes. There are three mechanisms, each with a class:
//
// EagerCredit, per group and ordered pair of ranks, bounds the bytes that a sender may send before
// the receiver has granted the edge. The receiver may not even have called the op, so it keeps at
// most this much as unexpected messages. It returns credit as it consumes: every message back to
// the sender carries the total number of bytes consumed so far.
//
// GrantBudget, per Context, bounds the memory that receivers have granted and not yet consumed. Its
// limit is RINGDIST_MEMORY. Beyond it, each edge of a group's oldest unfinished op is granted one
// segment at a time, so that there is always progress.
//
// InboundWindow, per group, limits the compressed data in flight over a slow link.
//
// Threads: the caller holds the lane's progress lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>

#include "base/clock.h"

namespace ringdist {

// Eager credit of one pair of ranks, for both directions: as a sender to the peer and as a receiver
// from it.
class EagerCredit {
 public:
  // `window` is the number of bytes that may be in flight without a grant. Both ranks should use
  // the same value, because the receiver reports after half of its own window.
  explicit EagerCredit(int64_t window) : window_(window) {}

  // Size of the window in segments. It is large enough for an edge's first grant to arrive before
  // the window is used up. Measured at 1 MiB on two ranks: with two segments the third one waited,
  // which cost 10 % of the op.
  static constexpr int64_t kSegments = 4;

  // Minimum charge of a message in bytes, so that the number of small messages is bounded, too.
  static constexpr int64_t kMinimumCharge = 512;
  static int64_t charge(size_t payload) {
    return std::max<int64_t>(kMinimumCharge, static_cast<int64_t>(payload));
  }

  // Sender side. allows() returns true if a message of this size may be sent on credit. If nothing
  // is in flight, any size may, so that a message larger than the window does not wait for ever.
  bool allows(size_t payload) const {
    return outstanding() == 0 || outstanding() + charge(payload) <= window_;
  }
  // Charges a message that has been sent on credit.
  void sent(size_t payload) { sent_ += charge(payload); }
  // Processes the receiver's total of consumed bytes. Returns true if credit was freed. Values that
  // are outdated or larger than what was sent are ignored.
  bool returned(uint64_t consumed_in_all) {
    const auto total = static_cast<int64_t>(consumed_in_all);
    if (total <= returned_ || total > sent_) return false;  // outdated or impossible
    returned_ = total;
    return true;
  }
  // Returns the bytes sent on credit that the receiver has not reported as consumed.
  int64_t outstanding() const { return sent_ - returned_; }

  // Receiver side. Counts a message that has arrived on credit. Returns false if the sender cannot
  // have had credit for it, by the rule of allows().
  bool arrived(size_t payload) {
    const int64_t kept = arrived_ - consumed_;
    arrived_ += charge(payload);
    return kept == 0 || kept + charge(payload) <= window_;
  }
  // Counts a consumed message that was sent on credit.
  void consumed(size_t payload) { consumed_ += charge(payload); }
  // Returns the total to put into a message to the sender, and records that it has been reported.
  uint64_t report() {
    reported_ = consumed_;
    return static_cast<uint64_t>(consumed_);
  }
  // Returns true if half of the window has been consumed since the last report. The sender may then
  // be waiting for credit, so a message of its own must carry the count.
  bool must_report() const { return consumed_ - reported_ >= window_ / 2; }

 private:
  int64_t window_;
  int64_t sent_ = 0;      // total bytes charged as a sender
  int64_t returned_ = 0;  // the peer's last reported total
  int64_t arrived_ = 0;   // total bytes charged as a receiver
  int64_t consumed_ = 0;  // the part of arrived_ that has been consumed
  int64_t reported_ = 0;  // value of consumed_ at the last report
};

// Memory that has been granted to senders, against a limit. change() may exceed the limit, because
// the oldest op of a group always gets one segment per edge.
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

// Window for compressed data from other hosts, shared by all ops of a group. If several ranks send
// to one over a slow link, bytes in flight beyond what the link delivers in a moment only wait in
// queues. They overflow the queues, are sent again, and delay what is needed sooner. The senders
// therefore share what the link delivers in kMoment, or in twice the shortest delay from a grant to
// its first message if that is longer.
//
// The rate is the highest of the last samples, since senders that are late or busy only lower it.
// The delay is the shortest one measured. Both are taken over all senders of other hosts together.
class InboundWindow {
 public:
  static constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();
  // Time for which the window holds data. It is more than a slow link and a busy processor take to
  // answer, and less than routers queue.
  static constexpr Duration kMoment = Milliseconds(20);

  // begin() is called when an op starts that is to be measured, and end() when it ends. Several may
  // overlap.
  void begin() { ++ops_; }
  void end(TimePoint now) {
    if (--ops_ > 0) return;
    // The time until the next op does not count for the link. A short op may still yield a sample.
    if (messages_ >= kFewMessages && now - begun_ >= kMoment / 4) record(now);
    messages_ = 0;
  }

  // Records a message of `bytes` bytes that has arrived for a measured op.
  void arrived(size_t bytes, TimePoint now) {
    if (messages_++ == 0) {  // the first message starts the sample: its duration is not measurable
      begun_ = now;
      bytes_ = 0;
      return;
    }
    bytes_ += static_cast<int64_t>(bytes);
    if (now - begun_ >= kMoment) record(now);
  }

  // Records the delay between a grant and the first message that it permitted.
  void answered(Duration delay) { shortest_ = std::min(shortest_, delay); }

  // Returns the number of bytes that each of `senders` senders may have in flight, or kUnlimited
  // before the first sample.
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

  // Stores the current sample and starts the next one.
  void record(TimePoint now) {
    rates_[next_++ % kSamples] = static_cast<double>(bytes_) / seconds(now - begun_);
    begun_ = now;
    bytes_ = 0;
    messages_ = 1;
  }

  std::array<double, kSamples> rates_{};  // bytes per second
  size_t next_ = 0;
  int ops_ = 0;           // measured ops that are running
  int64_t messages_ = 0;  // messages of the current sample, including the one that started it
  TimePoint begun_;
  int64_t bytes_ = 0;
  Duration shortest_ = Duration::max();
};

}  // namespace ringdist
