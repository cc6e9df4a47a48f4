// Who may decide for a generation of n members. docs/membership.md derives that no two of these
// sets decide differently.
#pragma once

#include <vector>

#include "base/check.h"

namespace ringdist {

// Some of the ranks 0 to size - 1.
class RankSet {
 public:
  explicit RankSet(int size) : has_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(has_.size()); }
  int count() const { return count_; }
  bool has(int rank) const { return has_[index(rank)]; }
  // Whether it was new.
  bool add(int rank) {
    if (has_[index(rank)]) return false;
    has_[index(rank)] = true;
    ++count_;
    return true;
  }

 private:
  size_t index(int rank) const {
    check(rank >= 0 && rank < size(), "a rank of another group");
    return static_cast<size_t>(rank);
  }

  std::vector<bool> has_;
  int count_ = 0;
};

class QuorumRule {
 public:
  explicit QuorumRule(int size) : size_(size) {}

  int size() const { return size_; }
  // Of even numbers, so that exactly half of them can do.
  bool store_votes() const { return size_ % 2 == 0; }
  int needed() const { return size_ / 2 + 1; }

  bool is_majority(const RankSet& votes, bool store) const {
    return votes.count() + (store && store_votes() ? 1 : 0) >= needed();
  }
  // All but those whose deaths the kernel had reported when the ballot began: later deaths need
  // another ballot.
  bool are_all_living(const RankSet& votes, const RankSet& dead) const {
    for (int rank = 0; rank < size_; ++rank)
      if (!votes.has(rank) && !dead.has(rank)) return false;
    return true;
  }
  bool is_quorum(const RankSet& votes, bool store, const RankSet& dead) const {
    return is_majority(votes, store) || are_all_living(votes, dead);
  }

 private:
  const int size_;
};

}  // namespace ringdist
