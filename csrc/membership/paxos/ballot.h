// The number of an attempt at a decision. Of two attempts the later round wins, of one round the
// higher rank; two members never make the same.
#pragma once

#include <compare>
#include <cstdint>

namespace ringdist {

struct Ballot {
  uint32_t round = 0;  // 0: none
  int32_t rank = -1;   // of its proposer, in the generation that decides

  auto operator<=>(const Ballot&) const = default;
};

}  // namespace ringdist
