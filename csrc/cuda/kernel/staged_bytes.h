// Bytes from a warp's fast memory to where they belong.
#pragma once

#include <cstdint>

#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"

namespace ringdist::gpu {

// Four at a time, but for the first and the last, whose words others may write to.
template <Warp W>
RINGDIST_DEVICE void write_bytes(W& warp, const uint8_t* from, int count, uint8_t* out) {
  const auto off = static_cast<int>(reinterpret_cast<uintptr_t>(out) % sizeof(uint32_t));
  const int wanted = off == 0 ? 0 : static_cast<int>(sizeof(uint32_t)) - off;
  const int before = wanted < count ? wanted : count;
  const int end = before + (count - before) / 4 * 4;  // of the words
  warp.each([&](int lane) {
    if (lane < before) out[lane] = from[lane];
    for (int i = before + 4 * lane; i < end; i += 4 * kWarp) {
      uint32_t word = 0;
      for (int byte = 0; byte < 4; ++byte) word |= uint32_t{from[i + byte]} << (8 * byte);
      *reinterpret_cast<uint32_t*>(out + i) = word;
    }
    if (end + lane < count) out[end + lane] = from[end + lane];
  });
}

}  // namespace ringdist::gpu
