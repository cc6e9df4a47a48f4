// Functions on the ranks that take part in an op on a device: this rank and a peer, or all ranks.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/device/device_runner.h"

namespace ringdist::gpu {

inline constexpr int kNoPeer = -1;  // stands for the peer of a collective

// Returns the peer of a send or receive, or kNoPeer for a collective.
inline int peer_of(const OpSpec& request) {
  return request.envelope ? request.envelope->peer : kNoPeer;
}

// Returns the ranks in ascending order, as RunnerDelegate::exchange() expects them. These are this
// rank and `peer`, or all ranks for kNoPeer.
inline std::vector<int> ranks_with(const RunnerDelegate& group, int peer) {
  if (peer != kNoPeer) return {std::min(group.rank(), peer), std::max(group.rank(), peer)};
  std::vector<int> out(static_cast<size_t>(group.size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace ringdist::gpu
