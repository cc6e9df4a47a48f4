// Sums over a warp's lanes.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist {

// In each lane the sum of those of the lanes before it.
template <Warp W>
RINGDIST_DEVICE auto sums_before(W& warp, const typename W::template Lanes<uint32_t>& x) ->
    typename W::template Lanes<uint32_t> {
  typename W::template Lanes<uint32_t> sums = x;
  RINGDIST_UNROLL
  for (int step = 1; step < kWarp; step *= 2) {
    const auto others =
        warp.gathered(sums, [&](int lane) { return lane < step ? lane : lane - step; });
    warp.each([&](int lane) {
      if (lane >= step) sums[lane] += others[lane];
    });
  }
  warp.each([&](int lane) { sums[lane] -= x[lane]; });
  return sums;
}

}  // namespace ringdist
