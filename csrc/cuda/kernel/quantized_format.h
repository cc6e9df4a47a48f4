// Formats of kernel/quantize.h on a device: how a warp chooses the codes and the scale of a block.
// They do the operations of kernel/quantize_loops.h in the same order, so that both give the same
// bits. The formats are specified in codec/<name>.spec.md.
#pragma once

#include <bit>
#include <cstdint>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/block_format.h"
#include "kernel/fp8.h"

namespace ringdist::gpu {

inline constexpr int kQuantizedParts = static_cast<int>(kQuantizeBlock) / kWarp;
// 1.5 * 2^23. Floats near it are 1 apart, so adding it rounds to the nearest integer, ties to even.
// The low bits of the sum are that integer in two's complement.
inline constexpr float kRound = 0x1.8p23f;

// A block after quantization and before packing.
template <Warp W>
struct QuantizedValues {
  Values<W, kQuantizedParts> t;                                // unscaled values of the codes
  typename W::template Lanes<uint32_t> code[kQuantizedParts];  // fields in the message
};

// Sums of products of values and codes, and of squares of codes. The scale may depend on them.
struct Products {
  float xt = 0;
  float tt = 0;
};

// Bits of the largest magnitude of a block, and its sign bit. The sign is set if both signs occur.
struct Largest {
  uint32_t bits = 0;
  uint32_t sign = 0;
};

// Returns the bf16 bits of a value that fits bf16 exactly.
RINGDIST_DEVICE uint16_t bfloat_field(float x) {
  return static_cast<uint16_t>(float_bits(x) >> 16);
}

// The code of a value, and the value that it stands for.
struct Nearest {
  float t;
  uint32_t field;
};

// Format of int8.
struct Int8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 7;
  static constexpr bool kFitted = false;  // true if the scale depends on Products
  RINGDIST_DEVICE static uint32_t field(int t) { return static_cast<uint32_t>(t) & 0xff; }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return static_cast<float>(static_cast<int8_t>(field));
  }

  // Returns the scale by which values are divided.
  RINGDIST_DEVICE static float first_scale(Largest largest) {
    return bfloat_to_float(scale_up(std::bit_cast<float>(largest.bits), 127));
  }
  // Returns the scale to write, from the first scale and the result of quantize().
  RINGDIST_DEVICE static uint16_t scale(float first, Products) { return bfloat_field(first); }

  // `at` is the first element of the block, for its random bits.
  template <Warp W>
  RINGDIST_DEVICE static Products quantize(W& warp, const Values<W, kQuantizedParts>& x,
                                           float inverse, Stochastic rounding, uint64_t at,
                                           QuantizedValues<W>& out) {
    each_element<kQuantizedParts>(warp, kQuantizeBlock, [&](int part, int lane, int i) {
      float moved = x.part[part][lane] * inverse;
      if (rounding.on)
        moved = dithered(moved, random_bits(rounding.key, at + static_cast<uint64_t>(i)));
      const Nearest to = nearest(moved);
      out.t.part[part][lane] = to.t;
      out.code[part][lane] = to.field;
    });
    return {};
  }
  RINGDIST_DEVICE static Nearest nearest(float c) {
    const float shifted = c + kRound;
    return {shifted - kRound, float_bits(shifted) & 0xff};
  }

 private:
  RINGDIST_DEVICE static float dithered(float x, uint32_t random) {
    const float offset = (static_cast<float>(random) - 32767.5f) * 0x1p-16f;
    const float moved = x + offset;
    const float low = moved < -127.0f ? -127.0f : moved;
    return low > 127.0f ? 127.0f : low;
  }
};

// Formats of int4 and int2.
template <int kBitCount>
struct Signed {
  static constexpr int kBits = kBitCount;
  static constexpr int kLow = 1 << (kBits - 1);
  static constexpr int kTinyBits = kBits - 1;
  static constexpr bool kFitted = true;
  RINGDIST_DEVICE static uint32_t field(int t) { return static_cast<uint32_t>(t + kLow); }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return static_cast<float>(static_cast<int>(field) - kLow);
  }

  // Gives the largest element the code -2^(kBits - 1), which has no positive counterpart.
  RINGDIST_DEVICE static float first_scale(Largest largest) {
    return std::bit_cast<float>(largest.bits | (largest.sign ^ kSignBit)) / kLow;
  }
  RINGDIST_DEVICE static uint16_t scale(float first, Products sums) {
    return scale_nearest(first * (sums.xt / sums.tt), kLow);
  }

  template <Warp W>
  RINGDIST_DEVICE static Products quantize(W& warp, const Values<W, kQuantizedParts>& x,
                                           float inverse, Stochastic, uint64_t,
                                           QuantizedValues<W>& out) {
    Values<W, kQuantizedParts> xt, tt;
    each_element<kQuantizedParts>(warp, kQuantizeBlock, [&](int part, int lane, int) {
      const float c = x.part[part][lane] * inverse;
      const Nearest to = nearest(c);
      out.t.part[part][lane] = to.t;
      out.code[part][lane] = to.field;
      xt.part[part][lane] = c * to.t;
      tt.part[part][lane] = to.t * to.t;
    });
    return {total(warp, xt), total(warp, tt)};
  }
  RINGDIST_DEVICE static Nearest nearest(float c) {
    constexpr float kHighest = kRound + (kLow - 1);
    const float shifted = c + kRound;
    const float bounded = shifted < kHighest ? shifted : kHighest;
    return {bounded - kRound, float_bits(bounded) - (float_bits(kRound) - kLow)};
  }

 private:
  // Adds sixteen running sums, with element i in sum i % 16, and then pairwise.
  template <Warp W>
  RINGDIST_DEVICE static float total(W& warp, const Values<W, kQuantizedParts>& products) {
    typename W::template Lanes<float> sum;
    warp.each([&](int lane) { sum[lane] = 0; });
    for (const auto& part : products.part) {
      // Lanes i and i + 16 compute the same sum, so both add the lower element first.
      const auto other = warp.shuffled(part, 16);
      warp.each([&](int lane) {
        const bool upper = lane >= 16;
        sum[lane] += upper ? other[lane] : part[lane];
        sum[lane] += upper ? part[lane] : other[lane];
      });
    }
    for (const int flip : {8, 4, 2, 1}) {
      const auto other = warp.shuffled(sum, flip);
      warp.each([&](int lane) { sum[lane] += other[lane]; });
    }
    return warp.of(sum, 0);
  }
};

// Formats of fp8.
template <typename Format>
struct Fp8 {
  static constexpr int kBits = 8;
  static constexpr int kTinyBits = 1;
  static constexpr bool kFitted = false;
  // Returns the field of 0, 1 or -1, which are the only codes of tiny blocks.
  RINGDIST_DEVICE static uint32_t field(int t) {
    return t == 0 ? 0 : (static_cast<uint32_t>(t) & 0x80) | Format::kOne;
  }
  RINGDIST_DEVICE static float value(uint32_t field) {
    return Format::widen(static_cast<uint8_t>(field));
  }

  RINGDIST_DEVICE static float first_scale(Largest largest) {
    return bfloat_to_float(scale_up(std::bit_cast<float>(largest.bits), Format::kLargest));
  }
  RINGDIST_DEVICE static uint16_t scale(float first, Products) { return bfloat_field(first); }

  template <Warp W>
  RINGDIST_DEVICE static Products quantize(W& warp, const Values<W, kQuantizedParts>& x,
                                           float inverse, Stochastic, uint64_t,
                                           QuantizedValues<W>& out) {
    each_element<kQuantizedParts>(warp, kQuantizeBlock, [&](int part, int lane, int) {
      const Nearest to = nearest(x.part[part][lane] * inverse);
      out.code[part][lane] = to.field;
      out.t.part[part][lane] = to.t;
    });
    return {};
  }
  RINGDIST_DEVICE static Nearest nearest(float c) {
    const uint8_t code = Format::narrow(c);
    return {Format::widen(code), code};
  }
};

}  // namespace ringdist::gpu
