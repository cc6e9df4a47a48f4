// Comparing results bit by bit.
#pragma once

#include <cstring>
#include <vector>

namespace ringdist {

using Floats = std::vector<float>;

inline bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace ringdist
