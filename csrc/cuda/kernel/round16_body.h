// What one warp does to 128 elements of the codecs fp16 and bf16. The twin of
// kernel/round16_loops.h, byte for byte, and of kernel/cast.h for the way back.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/block_at.h"
#include "cuda/kernel/owed.h"
#include "cuda/kernel/random_bits.h"
#include "kernel/round16_types.h"

namespace ringdist::gpu {

inline constexpr int kRoundBlock = 4 * kWarp;  // elements

template <typename Type>
struct Rounding {
  const float* in;
  Owed owed;
  int64_t count;
  uint64_t key;  // of random bits, where Type takes some
  uint16_t* out;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const BlockAt at(index, count, kRoundBlock);
    for (int part = 0; part < at.count; part += kWarp)
      warp.each([&](int lane) {
        if (part + lane < at.count) round(at.begin + part + lane);
      });
  }

 private:
  RINGDIST_DEVICE void round(int64_t i) const {
    const float x = owed.empty() ? in[i] : in[i] + owed.from[i];
    const auto element = static_cast<uint64_t>(i);
    const uint32_t random = Type::kStochastic ? random_bits(key, element) : 0;
    const uint16_t stored = Type::narrow(x, static_cast<uint16_t>(random));
    out[i] = stored;
    if (owed.empty()) return;
    const float loss = x - Type::widen(stored);
    const bool finite =
        (std::bit_cast<uint32_t>(loss) & rounding16::kInfinite) != rounding16::kInfinite;
    owed.to[i] = finite ? loss : owed.from[i];
  }
};

template <typename Type>
struct Widening {
  const uint16_t* in;
  bool accumulate;
  float* out;
  int64_t count;

  template <Warp W>
  RINGDIST_DEVICE void operator()(W& warp, int64_t index) const {
    const BlockAt at(index, count, kRoundBlock);
    for (int part = 0; part < at.count; part += kWarp)
      warp.each([&](int lane) {
        if (part + lane >= at.count) return;
        const int64_t i = at.begin + part + lane;
        const float x = Type::widen(in[i]);
        out[i] = accumulate ? out[i] + x : x;
      });
  }
};

}  // namespace ringdist::gpu
