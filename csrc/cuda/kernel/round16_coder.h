// Codecs fp16 and bf16 between the registers of a warp and bytes, as a Coder
// (cuda/kernel/codec_bodies.h, cuda/kernel/wide_blocks.h). Byte-identical to
// kernel/round16_loops.h.
#pragma once

#include <cstdint>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/quads.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/round16_loops.h"

namespace ringdist::gpu {

// Encodes each element on its own. kCount is the number of elements per warp. A rotation, if there
// is one, rotates these together.
template <typename Type>
struct Round16Coder {
  static constexpr int kParts = 8;
  static constexpr int kCount = kParts * kWarp;
  static constexpr int kEncodes = 1;
  static constexpr int kDecodes = 2;
  static constexpr bool kTogether = false;
  static constexpr int kScratch = 0;
  static constexpr bool kSparse = false;
  static constexpr bool kEncodesWide = true;
  static constexpr bool kDecodesWide = false;
  static constexpr int kLanes = kWarp;
  static constexpr int kStaged = 0;

  static constexpr int64_t bytes(int count) { return int64_t{2} * count; }
  static constexpr bool wide() { return true; }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed seed, uint64_t at,
                              uint8_t* out) const {
    const uint64_t key = Type::kStochastic ? seed.key() : 0;
    each_element<kParts>(warp, count, [&](int part, int lane, int i) {
      const uint32_t random =
          Type::kStochastic ? random_bits(key, at + static_cast<uint64_t>(i)) : 0;
      const uint16_t stored = Type::narrow(x.part[part][lane], static_cast<uint16_t>(random));
      store16(stored, out + 2 * i);
      x.part[part][lane] = Type::widen(stored);
    });
  }

  template <Warp W>
  RINGDIST_DEVICE bool encode_wide(W& warp, const Quads<W, kLanes>& x, Seed seed, uint64_t at,
                                   uint8_t* out) const {
    const uint64_t key = Type::kStochastic ? seed.key() : 0;
    each_quad<kLanes>(warp, [&](int q, int lane, int i) {
      struct alignas(8) {
        uint16_t at[4];
      } stored;
      for (int e = 0; e < 4; ++e) {
        const uint32_t random =
            Type::kStochastic ? random_bits(key, at + static_cast<uint64_t>(i + e)) : 0;
        stored.at[e] = Type::narrow(x.quad[q][lane].at[e], static_cast<uint16_t>(random));
      }
      *reinterpret_cast<decltype(stored)*>(out + 2 * i) = stored;
    });
    return true;
  }

  template <Warp W>
  struct Fetched {
    typename W::template Lanes<uint16_t> part[kParts];
  };

  template <Warp W>
  RINGDIST_DEVICE Fetched<W> fetch(W& warp, const uint8_t* in, int count) const {
    Fetched<W> out;
    each_element<kParts>(
        warp, count, [&](int part, int lane, int i) { out.part[part][lane] = load16(in + 2 * i); });
    return out;
  }

  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const Fetched<W>& in, int count, Seed, uint64_t, bool,
                              Values<W, kParts>& x) const {
    each_element<kParts>(warp, count, [&](int part, int lane, int) {
      x.part[part][lane] = Type::widen(in.part[part][lane]);
    });
    return true;
  }
};

}  // namespace ringdist::gpu
