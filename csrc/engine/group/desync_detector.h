// Detects desyncs: ranks that call different ops, or that do not call one. It records the latest
// calls of this rank and what other ranks have announced about theirs.
//
// Announcements are notices (notice.h) that a Group floods when an op stalls. Threads: the caller
// holds the lane's progress lock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "plan/fingerprint.h"

namespace ringdist {

// Keeps the last kKept calls and announcements. It decides what to announce once, and names the
// ranks that an op waits for.
class DesyncDetector {
 public:
  DesyncDetector(int rank, int size) : rank_(rank), absent_(static_cast<size_t>(size)) {}

  // Records a call of this rank. It replaces the call kKept ops before.
  void record_call(uint64_t number, const Fingerprint& fingerprint) {
    slots_[number % kKept] = {number, fingerprint};
  }
  // Returns the fingerprint of this rank's call, or nothing if there is none or it has been
  // replaced.
  std::optional<Fingerprint> find(uint64_t number) const {
    const CallRecord& slot = slots_[number % kKept];
    if (number == 0 || slot.number != number) return std::nullopt;
    return slot.fingerprint;
  }

  // Records that `rank` has announced its call of an op. Announcements of the lowest numbers are
  // dropped when there are more than kKept ops.
  void record_peer_call(uint64_t number, int rank, const Fingerprint& fingerprint) {
    peer_calls_[number][rank] = fingerprint;
    while (peer_calls_.size() > kKept) peer_calls_.erase(peer_calls_.begin());
  }
  // Returns the announced calls of an op, by rank.
  const std::map<int, Fingerprint>& peer_calls(uint64_t number) const {
    static const std::map<int, Fingerprint> nobody;
    auto it = peer_calls_.find(number);
    return it == peer_calls_.end() ? nobody : it->second;
  }

  // Returns the first op after `number` that other ranks have announced; 0 if there is none.
  uint64_t next_peer_call(uint64_t number) const {
    auto it = peer_calls_.upper_bound(number);
    return it == peer_calls_.end() ? 0 : it->first;
  }

  // Returns the other ranks that have not announced a call of the op.
  std::vector<int> missing(uint64_t number) const;

  // Records that `rank` has called ops up to `last` only. A later announcement replaces an earlier
  // one.
  void record_absence(int rank, uint64_t last, TimePoint now) {
    absent_[static_cast<size_t>(rank)] = {last, now};
  }
  // Describes why `rank` is missing in an op that this rank called at `started`, such as "which has
  // not called it (its last: #25)". Announcements from before that time do not count.
  std::string absence(int rank, uint64_t number, TimePoint started) const;
  // Call when another rank announces an op that this rank has not called. Returns true if this rank
  // must announce its absence, false if it has done so for this op or a later one.
  bool announce_absence_once(uint64_t number) {
    if (number <= announced_absence_) return false;
    announced_absence_ = number;
    return true;
  }

  // Returns true if this rank has called the op and has not announced it yet, and marks it as
  // announced. Returns false if the record of the call has been replaced.
  bool announce_once(uint64_t number) {
    if (number == 0 || slots_[number % kKept].number != number) return false;
    return !std::exchange(slots_[number % kKept].told, true);
  }

 private:
  // Number of calls that are remembered, in a ring by number. If the record of an op in flight has
  // been replaced, the Group records it again when the op stalls.
  static constexpr size_t kKept = 1024;
  // A call of this rank.
  struct CallRecord {
    uint64_t number = 0;
    Fingerprint fingerprint{};
    bool told = false;  // announce_once() has returned true for it
  };
  // The last op that a rank has called, as it announced.
  struct AbsenceRecord {
    uint64_t last = 0;
    TimePoint when;
  };

  int rank_;
  std::array<CallRecord, kKept> slots_{};
  std::map<uint64_t, std::map<int, Fingerprint>> peer_calls_;
  std::vector<AbsenceRecord> absent_;  // by rank
  uint64_t announced_absence_ = 0;     // last op that this rank has announced not to have called
};

// Makes the error for two calls of one op that differ. `us` and `them` name the ranks; `theirs` is
// the group part of the other fingerprint (Fingerprint::group_part()).
Error disagreement(uint64_t number, const std::string& us, const Fingerprint& ours,
                   const std::string& them, const Fingerprint& theirs);

}  // namespace ringdist
