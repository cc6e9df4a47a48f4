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
#include <cstdint>

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

}  // namespace ringdist
