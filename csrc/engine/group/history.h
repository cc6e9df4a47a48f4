// What this rank has called lately, and what the others say they have: how ranks that disagree, or
// do not come, are found out.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "engine/op/message.h"

namespace ringdist {

class History {
 public:
  // Ours: the last kKept ops.
  void called(uint64_t number, const Fingerprint& fingerprint) {
    slots_[number % kKept] = {number, fingerprint};
  }
  std::optional<Fingerprint> find(uint64_t number) const {
    const Slot& slot = slots_[number % kKept];
    if (number == 0 || slot.number != number) return std::nullopt;
    return slot.fingerprint;
  }

  // The others': who has come to an op, and with what.
  void heard(uint64_t number, int rank, const Fingerprint& fingerprint) {
    heard_[number][rank] = fingerprint;
    while (heard_.size() > kKept) heard_.erase(heard_.begin());
  }
  const std::map<int, Fingerprint>& heard_of(uint64_t number) const {
    static const std::map<int, Fingerprint> nobody;
    auto it = heard_.find(number);
    return it == heard_.end() ? nobody : it->second;
  }

  // The first op after `number` that others say they have called; 0: none.
  uint64_t heard_after(uint64_t number) const {
    auto it = heard_.upper_bound(number);
    return it == heard_.end() ? 0 : it->first;
  }

  // Whether we have told the others about an op; marks it told.
  bool tell_once(uint64_t number) {
    if (number == 0 || slots_[number % kKept].number != number) return false;
    return !std::exchange(slots_[number % kKept].told, true);
  }

 private:
  static constexpr size_t kKept = 1024;
  struct Slot {
    uint64_t number = 0;
    Fingerprint fingerprint{};
    bool told = false;
  };
  std::array<Slot, kKept> slots_{};
  std::map<uint64_t, std::map<int, Fingerprint>> heard_;
};

}  // namespace ringdist
