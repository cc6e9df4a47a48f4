// Pairs of processes of a World that can communicate, and the time of the last change. A pair must
// reach each other in both directions and be awake. Only such members must be kept by a decision.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace ringdist::membership {

class Reach {
 public:
  void add_process(TimePoint now) {
    for (auto& row : pairs_) row.push_back({true, now});
    pairs_.emplace_back(pairs_.size() + 1, Pair{true, now});
  }
  // Calls `can_talk` for all pairs and records the changes.
  void update(TimePoint now, const std::function<bool(int, int)>& can_talk) {
    for (size_t a = 0; a < pairs_.size(); ++a)
      for (size_t b = 0; b < pairs_.size(); ++b) {
        const bool talk = can_talk(static_cast<int>(a), static_cast<int>(b));
        if (talk != pairs_[a][b].talk) pairs_[a][b] = {talk, now};
      }
  }

  bool talk(int a, int b) const { return at(a, b).talk; }
  // Returns the time since which the state of the pair has been the same.
  TimePoint since(int a, int b) const { return at(a, b).since; }

 private:
  struct Pair {
    bool talk;
    TimePoint since;
  };

  const Pair& at(int a, int b) const {
    return pairs_[static_cast<size_t>(a)][static_cast<size_t>(b)];
  }

  std::vector<std::vector<Pair>> pairs_;
};

}  // namespace ringdist::membership
