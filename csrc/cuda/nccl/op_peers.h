// Whom an op on a device concerns: a peer, or all ranks of its group.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/device/device_runner.h"

namespace ringdist::gpu {

inline constexpr int kNoPeer = -1;  // of collectives

inline int peer_of(const OpSpec& request) {
  return request.envelope ? request.envelope->peer : kNoPeer;
}

// In order: this rank and the peer, or all. As RunnerDelegate::exchange() takes them.
inline std::vector<int> ranks_with(const RunnerDelegate& group, int peer) {
  if (peer != kNoPeer) return {std::min(group.rank(), peer), std::max(group.rank(), peer)};
  std::vector<int> out(static_cast<size_t>(group.size()));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

}  // namespace ringdist::gpu
