// Which processes of a world can talk to each other, and since when. Both ways and awake: no less
// makes a member that must be kept.
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
  // Asks of all pairs whether they can talk.
  void update(TimePoint now, const std::function<bool(int, int)>& can_talk) {
    for (size_t a = 0; a < pairs_.size(); ++a)
      for (size_t b = 0; b < pairs_.size(); ++b) {
        const bool talk = can_talk(static_cast<int>(a), static_cast<int>(b));
        if (talk != pairs_[a][b].talk) pairs_[a][b] = {talk, now};
      }
  }

  bool talk(int a, int b) const { return at(a, b).talk; }
  // Since when it has been so.
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
