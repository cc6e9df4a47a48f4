// A block of the codec `randomk` between a warp's registers and its bytes. codec/randomk.spec.md
// has them.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/seed.h"
#include "cuda/kernel/sparse_coder.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/counter_rng.h"
#include "kernel/finite_bfloat.h"
#include "kernel/half.h"

namespace ringdist::gpu {

struct RandomkCoder : SparseBlock {
  static constexpr int kScratch = 0;

  constexpr int64_t bytes(int count) const { return int64_t{kValue} * share(count); }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed seed, uint64_t at,
                              uint8_t* out) const {
    const bool poisoned = largest_magnitude(warp, x) >= kInfinity;
    const auto chosen = draw(warp, seed, at, count);
    int sent = 0;
    for (int part = 0; part < kParts; ++part) {
      const uint32_t lanes = warp.of(chosen, part);
      warp.each([&](int lane) {
        float& own = x.part[part][lane];
        const uint16_t value = poisoned ? kBFloatNaN : finite_bfloat(own);
        if (is_in(lanes, lane)) store16(value, out + kValue * place(lanes, lane, sent));
        own = poisoned             ? std::numeric_limits<float>::quiet_NaN()
              : is_in(lanes, lane) ? bfloat_to_float(value)
                                   : 0;
      });
      sent += std::popcount(lanes);
    }
  }

  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const uint8_t* in, int count, Seed seed, uint64_t at,
                              bool adding, Values<W, kParts>& x) const {
    const auto chosen = draw(warp, seed, at, count);
    typename W::template Lanes<uint32_t> poisons;
    warp.each([&](int lane) { poisons[lane] = 0; });
    int sent = 0;
    for (int part = 0; part < kParts; ++part) {
      const uint32_t lanes = warp.of(chosen, part);
      warp.each([&](int lane) {
        float value = absent(adding);
        if (is_in(lanes, lane)) {
          const float given = bfloat_to_float(load16(in + kValue * place(lanes, lane, sent)));
          if (!finite(given)) poisons[lane] = 1;
          value = present(given, adding);
        }
        x.part[part][lane] = value;
      });
      sent += std::popcount(lanes);
    }
    if (warp.ballot(poisons) != 0) fill(warp, x, std::numeric_limits<float>::quiet_NaN());
    return true;
  }

 private:
  static constexpr int kValue = 2;  // bytes

  // Those of the block, by Floyd's method: lane p has a bit for each element of part p.
  template <Warp W>
  RINGDIST_DEVICE auto draw(W& warp, Seed seed, uint64_t at, int count) const ->
      typename W::template Lanes<uint32_t> {
    const uint64_t key = random_at(seed.shared, at / kCount);
    typename W::template Lanes<uint32_t> chosen;
    warp.each([&](int lane) { chosen[lane] = 0; });
    for (int last = count - share(count); last < count; ++last) {
      const auto all = static_cast<uint64_t>(last);
      const auto drawn = static_cast<int>((random_at(key, all) >> 32) * (all + 1) >> 32);
      const bool taken_before = is_in(warp.of(chosen, drawn / kWarp), drawn % kWarp);
      const int taken = taken_before ? last : drawn;
      warp.each([&](int lane) {
        if (lane == taken / kWarp) chosen[lane] |= 1u << (taken % kWarp);
      });
    }
    return chosen;
  }
};

}  // namespace ringdist::gpu
