// The formats of kernel/quantize.h on a device: how a warp chooses the codes of one block and its
// scale. Twins of the types in kernel/quantize_loops.h: the same operations in the same order, so
// that both give the same bits. codec/<name>.spec.md has what they have to be.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/random_bits.h"
#include "kernel/block_format.h"
#include "kernel/block_scale.h"
#include "kernel/fp8.h"

namespace ringdist::gpu {

inline constexpr int kParts = static_cast<int>(kQuantizeBlock) / kWarp;  // elements of a lane
inline constexpr float kRound = 0x1.8p23f;  // added, it rounds to integers

// A block between being read and being packed. Element i is part i / 32 of lane i % 32.
template <Warp W>
struct Block {
  typename W::template Lanes<float> x[kParts];
  typename W::template Lanes<float> t[kParts];        // what the codes stand for, unscaled
  typename W::template Lanes<uint32_t> code[kParts];  // as fields on the wire
  uint32_t largest = 0;                               // bits of the largest magnitude
  uint32_t largest_sign = 0;                          // and its sign bit, set if both signs have it
};

RINGDIST_DEVICE uint32_t float_bits(float x) { return std::bit_cast<uint32_t>(x); }

struct Int8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 7;
  RINGDIST_DEVICE static uint32_t field(int t) { return static_cast<uint32_t>(t) & 0xff; }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return static_cast<float>(static_cast<int8_t>(field));
  }

  // `at`: the block's first element, for its random bits.
  template <Warp W>
  RINGDIST_DEVICE static uint16_t quantize(W& warp, Block<W>& block, Stochastic rounding,
                                           uint64_t at) {
    const uint16_t scale = scale_up(std::bit_cast<float>(block.largest), 127);
    const float inverse = 1 / bfloat_to_float(scale);
    for (int part = 0; part < kParts; ++part)
      warp.each([&](int lane) {
        float moved = block.x[part][lane] * inverse;
        if (rounding.on)
          moved = dithered(moved, random_bits(rounding.key, at + part * kWarp + lane));
        const float shifted = moved + kRound;
        block.t[part][lane] = shifted - kRound;
        block.code[part][lane] = float_bits(shifted) & 0xff;
      });
    return scale;
  }

 private:
  RINGDIST_DEVICE static float dithered(float x, uint32_t random) {
    const float offset = (static_cast<float>(random) - 32767.5f) * 0x1p-16f;
    const float moved = x + offset;
    const float low = moved < -127.0f ? -127.0f : moved;
    return low > 127.0f ? 127.0f : low;
  }
};

template <int kBitCount>
struct Signed {
  static constexpr int kBits = kBitCount;
  static constexpr int kLow = 1 << (kBits - 1);
  static constexpr int kTinyBits = kBits - 1;
  RINGDIST_DEVICE static uint32_t field(int t) { return static_cast<uint32_t>(t + kLow); }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return static_cast<float>(static_cast<int>(field) - kLow);
  }

  template <Warp W>
  RINGDIST_DEVICE static uint16_t quantize(W& warp, Block<W>& block, Stochastic, uint64_t) {
    constexpr float kHighest = kRound + (kLow - 1);
    const float first =
        std::bit_cast<float>(block.largest | (block.largest_sign ^ 0x80000000)) / kLow;
    const float inverse = 1 / first;
    typename W::template Lanes<float> xt[kParts], tt[kParts];
    for (int part = 0; part < kParts; ++part)
      warp.each([&](int lane) {
        const float c = block.x[part][lane] * inverse;
        const float shifted = c + kRound;
        const float bounded = shifted < kHighest ? shifted : kHighest;
        const float t = bounded - kRound;
        block.t[part][lane] = t;
        block.code[part][lane] = (float_bits(bounded) + kLow) & ((1u << kBits) - 1);
        xt[part][lane] = c * t;
        tt[part][lane] = t * t;
      });
    return scale_nearest(first * (total(warp, xt) / total(warp, tt)), kLow);
  }

 private:
  // Sixteen running sums, element i in sum i % 16, then pairwise.
  template <Warp W>
  RINGDIST_DEVICE static float total(W& warp, const typename W::template Lanes<float>* products) {
    typename W::template Lanes<float> sum;
    warp.each([&](int lane) { sum[lane] = 0; });
    for (int part = 0; part < kParts; ++part) {
      const auto other = warp.shuffled(products[part], 16);
      warp.each([&](int lane) {
        const bool upper = lane >= 16;
        sum[lane] += upper ? other[lane] : products[part][lane];
        sum[lane] += upper ? products[part][lane] : other[lane];
      });
    }
    for (const int flip : {8, 4, 2, 1}) {
      const auto other = warp.shuffled(sum, flip);
      warp.each([&](int lane) { sum[lane] += other[lane]; });
    }
    return warp.of(sum, 0);
  }
};

template <typename Format>
struct Fp8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 1;
  // 1 or -1, the only codes that tiny blocks use.
  RINGDIST_DEVICE static uint32_t field(int t) {
    return t == 0 ? 0 : (static_cast<uint32_t>(t) & 0x80) | Format::kOne;
  }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return Format::widen(static_cast<uint8_t>(field));
  }

  template <Warp W>
  RINGDIST_DEVICE static uint16_t quantize(W& warp, Block<W>& block, Stochastic, uint64_t) {
    const uint16_t scale = scale_up(std::bit_cast<float>(block.largest), Format::kLargest);
    const float inverse = 1 / bfloat_to_float(scale);
    for (int part = 0; part < kParts; ++part)
      warp.each([&](int lane) {
        const uint8_t code = Format::narrow(block.x[part][lane] * inverse);
        block.code[part][lane] = code;
        block.t[part][lane] = Format::widen(code);
      });
    return scale;
  }
};

// Calls run(Format()) with the type for `format`.
template <typename Run>
void with_format(BlockFormat format, Run run) {
  switch (format) {
    case BlockFormat::kFp8E4M3:
      return run(Fp8<E4M3>());
    case BlockFormat::kFp8E5M2:
      return run(Fp8<E5M2>());
    case BlockFormat::kInt8:
      return run(Int8());
    case BlockFormat::kInt4:
      return run(Signed<4>());
    case BlockFormat::kInt2:
      return run(Signed<2>());
  }
}

}  // namespace ringdist::gpu
