// Who has called what: this rank lately, and the others as far as they say. So ranks that disagree,
// or do not come, are found out.
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

class DesyncDetector {
 public:
  DesyncDetector(int rank, int size) : rank_(rank), absent_(static_cast<size_t>(size)) {}

  // Ours: the last kKept ops.
  void record_call(uint64_t number, const Fingerprint& fingerprint) {
    slots_[number % kKept] = {number, fingerprint};
  }
  std::optional<Fingerprint> find(uint64_t number) const {
    const CallRecord& slot = slots_[number % kKept];
    if (number == 0 || slot.number != number) return std::nullopt;
    return slot.fingerprint;
  }

  // The others': who has come to an op, and with what.
  void record_peer_call(uint64_t number, int rank, const Fingerprint& fingerprint) {
    peer_calls_[number][rank] = fingerprint;
    while (peer_calls_.size() > kKept) peer_calls_.erase(peer_calls_.begin());
  }
  const std::map<int, Fingerprint>& peer_calls(uint64_t number) const {
    static const std::map<int, Fingerprint> nobody;
    auto it = peer_calls_.find(number);
    return it == peer_calls_.end() ? nobody : it->second;
  }

  // The first op after `number` that others say they have called; 0: none.
  uint64_t next_peer_call(uint64_t number) const {
    auto it = peer_calls_.upper_bound(number);
    return it == peer_calls_.end() ? 0 : it->first;
  }

  // Ranks from which there is no sign that they have called the op.
  std::vector<int> missing(uint64_t number) const;

  // A rank says that it has called ops up to `last` only. Later words hold.
  void record_absence(int rank, uint64_t last, TimePoint now) {
    absent_[static_cast<size_t>(rank)] = {last, now};
  }
  // "which has not called it (its last: #25)", of an op that we called at `started`.
  std::string absence(int rank, uint64_t number, TimePoint started) const;
  // Somebody asks for an op that we have not called. False if we have said so of it or of a later
  // one.
  bool announce_absence_once(uint64_t number) {
    if (number <= announced_absence_) return false;
    announced_absence_ = number;
    return true;
  }

  // Whether we have told the others about an op; marks it told.
  bool announce_once(uint64_t number) {
    if (number == 0 || slots_[number % kKept].number != number) return false;
    return !std::exchange(slots_[number % kKept].told, true);
  }

 private:
  static constexpr size_t kKept = 1024;
  struct CallRecord {
    uint64_t number = 0;
    Fingerprint fingerprint{};
    bool told = false;
  };
  struct AbsenceRecord {
    uint64_t last = 0;
    TimePoint when;
  };

  int rank_;
  std::array<CallRecord, kKept> slots_{};
  std::map<uint64_t, std::map<int, Fingerprint>> peer_calls_;
  std::vector<AbsenceRecord> absent_;  // by rank
  uint64_t announced_absence_ = 0;     // the last op of which we said that we have not called it
};

// Two ranks' calls of one op differ: `theirs` is its group part.
Error disagreement(uint64_t number, const std::string& us, const Fingerprint& ours,
                   const std::string& them, const Fingerprint& theirs);

}  // namespace ringdist
