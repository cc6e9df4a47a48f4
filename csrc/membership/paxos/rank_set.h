// Some of the ranks 0 to size - 1.
#pragma once

#include <vector>

#include "base/check.h"

namespace ringdist {

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

}  // namespace ringdist
