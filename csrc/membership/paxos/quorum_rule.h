// Quorums for a generation of n members. docs/explanation/membership-proof.md proves that no two
// such quorums decide differently. Plain values; not thread-safe.
#pragma once

#include <vector>

#include "base/check.h"

namespace ringdist {

// A subset of the ranks 0 to size - 1, with a count. A rank outside of that range fails a check().
class RankSet {
 public:
  explicit RankSet(int size) : has_(static_cast<size_t>(size)) {}

  int size() const { return static_cast<int>(has_.size()); }  // number of ranks in the range
  int count() const { return count_; }                        // number of ranks in the set
  bool has(int rank) const { return has_[index(rank)]; }
  // Adds `rank`. Returns false if it was in the set.
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

// Quorum rule of one generation. A decision needs a majority of all members, where the store counts
// as one more voter if their number is even. The votes of all living members are also enough, if
// the kernel has reported the deaths of all others.
class QuorumRule {
 public:
  explicit QuorumRule(int size) : size_(size) {}

  int size() const { return size_; }
  // Returns true if the store has a vote. It does for an even number of members, so that half of
  // them and the store are enough.
  bool store_votes() const { return size_ % 2 == 0; }
  // Returns how many votes are a majority, the store's included if it has one.
  int needed() const { return size_ / 2 + 1; }

  // Returns true if the members in `votes`, and the store if `store`, are a majority.
  bool is_majority(const RankSet& votes, bool store) const {
    return votes.count() + (store && store_votes() ? 1 : 0) >= needed();
  }
  // Returns true if all members have voted except those in `dead`. These are the deaths that the
  // kernel had reported when the ballot began: a later death needs another ballot.
  bool are_all_living(const RankSet& votes, const RankSet& dead) const {
    for (int rank = 0; rank < size_; ++rank)
      if (!votes.has(rank) && !dead.has(rank)) return false;
    return true;
  }
  // Returns true if `votes` and `store` may decide, by either rule.
  bool is_quorum(const RankSet& votes, bool store, const RankSet& dead) const {
    return is_majority(votes, store) || are_all_living(votes, dead);
  }

 private:
  const int size_;
};

}  // namespace ringdist
