// ncclConfig_t as of 2.18, the oldest that is taken: later ones read its size and take the rest for
// unset.
#pragma once

#include <climits>
#include <cstddef>

namespace ringdist::gpu {

struct NcclConfig {
  static constexpr int kUnset = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned int magic = 0xcafebeef;
  unsigned int version = 21801;  // of this layout
  int blocking = kUnset;
  int cga_cluster_size = kUnset;
  int least_ctas = kUnset;
  int most_ctas = kUnset;
  const char* net_name = nullptr;
  int split_share = kUnset;
};

}  // namespace ringdist::gpu
