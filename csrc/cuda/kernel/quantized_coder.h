// Blocks of the codecs fp8, int8, int4 and int2 between the registers of a warp and bytes.
// Byte-identical to kernel/quantize_loops.h. A Coder (cuda/kernel/codec_bodies.h).
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/quads.h"
#include "cuda/kernel/quantized_format.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/block_format.h"

namespace ringdist::gpu {

template <typename Format>
struct QuantizedCoder {
  static constexpr int kParts = kQuantizedParts;
  static constexpr int kCount = kQuantizeBlock;
  static constexpr int kEncodes = 4;
  static constexpr int kDecodes = 4;
  static constexpr bool kTogether = true;
  static constexpr int kScratch = kCount;
  static constexpr bool kSparse = false;
  static constexpr bool kEncodesWide = true;
  static constexpr bool kDecodesWide = false;
  static constexpr int kLanes = kCount / kWarp;
  static constexpr int kStaged = kWideCount / kCount * (2 + kCount * Format::kBits / 8);

  bool stochastic = false;

  static constexpr int64_t bytes(int count) { return kScaleBytes + packed_bytes(count); }
  constexpr bool wide() const { return !stochastic; }

  // Values per block are computed once, each lane for one of the blocks.
  template <Warp W, int kBlocks>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts> (&x)[kBlocks], int count, Seed seed,
                              uint64_t at, uint8_t* out) const {
    uint32_t largest[kBlocks];
    typename W::template Lanes<Largest> mine;
    RINGDIST_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const Largest of_block = measure(warp, x[b]);
      largest[b] = of_block.bits;
      give<kBlocks>(warp, b, of_block, mine);
    }
    typename W::template Lanes<float> first, inverse;
    warp.each([&](int lane) {
      first[lane] = Format::first_scale(mine[lane]);
      inverse[lane] = 1 / first[lane];
    });
    const Stochastic rounding{stochastic, seed.key()};
    typename W::template Lanes<Products> products;
    typename W::template Lanes<uint32_t> rare;
    RINGDIST_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      QuantizedValues<W> coded;
      Products of_block;
      uint32_t scale = kOrdinary;
      if (is_ordinary(largest[b]))
        of_block = Format::quantize(warp, x[b], warp.of(inverse, b), rounding,
                                    at + static_cast<uint64_t>(b * count), coded);
      else
        scale = quantize_rare(warp, x[b], largest[b], coded);
      give<kBlocks>(warp, b, of_block, products);
      give<kBlocks>(warp, b, scale, rare);
      uint8_t* const packed = out + b * bytes(count) + kScaleBytes;
      if (count == kCount)
        pack_whole(warp, coded, packed);
      else
        pack_tail(warp, coded, count, packed);
      x[b] = coded.t;
    }
    typename W::template Lanes<uint32_t> scales;
    warp.each([&](int lane) {
      scales[lane] =
          rare[lane] == kOrdinary ? Format::scale(first[lane], products[lane]) : rare[lane];
    });
    RINGDIST_UNROLL
    for (int b = 0; b < kBlocks; ++b) {
      const auto scale = static_cast<uint16_t>(warp.of(scales, b));
      store_field(warp, scale, out + b * bytes(count));
      const float value =
          scale == kPoisonScale ? std::numeric_limits<float>::quiet_NaN() : scale_value(scale);
      each_element<kParts>(warp, count,
                           [&](int part, int lane, int) { x[b].part[part][lane] *= value; });
    }
  }

  template <Warp W>
  RINGDIST_DEVICE bool encode_wide(W& warp, const Quads<W, kLanes>& x, Seed, uint64_t,
                                   uint8_t* out) const {
    const auto largest = measure_wide(warp, x);
    typename W::template Lanes<uint32_t> rare;
    warp.each([&](int lane) { rare[lane] = is_ordinary(largest[lane] >> 1) ? 0 : 1; });
    if (warp.ballot(rare) != 0) return false;
    typename W::template Lanes<float> first, inverse;
    typename W::template Lanes<uint32_t> words[kRows];  // four bytes in each
    static_assert(4 * kLanes == 16);  // running sums of a block; element i goes into sum i % 16
    typename W::template Lanes<float> xt[4], tt[4];
    warp.each([&](int lane) {
      first[lane] = Format::first_scale({largest[lane] >> 1, largest[lane] << 31});
      inverse[lane] = 1 / first[lane];
      for (auto& word : words) word[lane] = 0;
      for (int e = 0; e < 4; ++e) xt[e][lane] = tt[e][lane] = 0;
    });
    each_quad<kLanes>(warp, [&](int q, int lane, int) {
      for (int e = 0; e < 4; ++e) {
        const float c = x.quad[q][lane].at[e] * inverse[lane];
        const Nearest to = Format::nearest(c);
        words[q % kRows][lane] += to.field << (8 * e + q / kRows * Format::kBits);
        xt[e][lane] += c * to.t;
        tt[e][lane] += to.t * to.t;
      }
    });
    typename W::template Lanes<Products> products;
    if constexpr (Format::kFitted) {
      const auto of_xt = total_of_quads<kLanes>(warp, xt);
      const auto of_tt = total_of_quads<kLanes>(warp, tt);
      warp.each([&](int lane) { products[lane] = {of_xt[lane], of_tt[lane]}; });
    }
    warp.each([&](int lane) {
      auto* const to = static_cast<uint16_t*>(warp.scratch()) +
                       lane / kLanes * (bytes(kCount) / static_cast<int>(sizeof(uint16_t)));
      const int member = lane % kLanes;
      if (member == 0) to[0] = Format::scale(first[lane], products[lane]);
      for (int row = 0; row < kRows; ++row) {
        const int at = 1 + 2 * (row * kLanes + member);
        to[at] = static_cast<uint16_t>(words[row][lane]);
        to[at + 1] = static_cast<uint16_t>(words[row][lane] >> 16);
      }
    });
    write_staged<kStaged>(warp, out);
    return true;
  }

  template <Warp W>
  struct Fetched {
    uint16_t scale;
    typename W::template Lanes<uint8_t> packed[kParts];  // the byte with each element's code
  };

  template <Warp W>
  RINGDIST_DEVICE Fetched<W> fetch(W& warp, const uint8_t* in, int count) const {
    Fetched<W> out;
    out.scale = load16(in);
    const uint8_t* packed = in + kScaleBytes;
    const int bytes = packed_bytes(count);
    each_element<kParts>(warp, count, [&](int part, int lane, int i) {
      out.packed[part][lane] = packed[i - i / bytes * bytes];
    });
    return out;
  }

  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const Fetched<W>& in, int count, Seed, uint64_t, bool,
                              Values<W, kParts>& x) const {
    constexpr uint32_t kMask = (1u << Format::kBits) - 1;
    const float scale = scale_value(in.scale);
    const int bytes = packed_bytes(count);
    each_element<kParts>(warp, count, [&](int part, int lane, int i) {
      const uint32_t code = in.packed[part][lane] >> (i / bytes * Format::kBits);
      x.part[part][lane] = Format::value(code & kMask) * scale;
    });
    return true;
  }

 private:
  static constexpr int kScaleBytes = sizeof(uint16_t);
  static constexpr int kFields = 8 / Format::kBits;  // codes in a byte
  static constexpr int kRows = kQuads / kFields;     // quads with consecutive bytes
  static constexpr uint32_t kOrdinary = 0xffffffff;  // no valid scale

  static constexpr bool is_ordinary(uint32_t largest) {
    return largest >= float_bits(kSmallestScaled) && largest < kInfinity;
  }
  // Copies a value to the lanes that compute for block b. The first block sets all lanes, so that
  // none has an undefined value.
  template <int kBlocks, Warp W, typename T>
  RINGDIST_DEVICE static void give(W& warp, int b, const T& of_block,
                                   typename W::template Lanes<T>& to) {
    warp.each([&](int lane) {
      if (b == 0 || lane % kBlocks == b) to[lane] = of_block;
    });
  }

  // Byte i holds the codes i, i + bytes, i + 2 * bytes, ..., with the first in its low bits.
  static constexpr int packed_bytes(int count) { return (count * Format::kBits + 7) / 8; }

  template <Warp W>
  RINGDIST_DEVICE static Largest measure(W& warp, const Values<W, kParts>& x) {
    // The maximum of such bits is the largest magnitude. Of equal ones it is the negative one.
    typename W::template Lanes<uint32_t> largest;  // bits with the sign moved to the lowest
    warp.each([&](int lane) {
      largest[lane] = 0;
      for (const auto& part : x.part) {
        const uint32_t rotated = (float_bits(part[lane]) << 1) | (float_bits(part[lane]) >> 31);
        if (rotated > largest[lane]) largest[lane] = rotated;
      }
    });
    const uint32_t most = warp.maximum(largest);
    return {most >> 1, most << 31};
  }

  // Does the same as measure() for wide bodies, with the sign as the lowest bit.
  template <Warp W>
  RINGDIST_DEVICE static auto measure_wide(W& warp, const Quads<W, kLanes>& x) {
    typename W::template Lanes<uint32_t> largest;
    warp.each([&](int lane) { largest[lane] = 0; });
    each_quad<kLanes>(warp, [&](int q, int lane, int) {
      for (const float value : x.quad[q][lane].at) {
        const uint32_t rotated = (float_bits(value) << 1) | (float_bits(value) >> 31);
        if (rotated > largest[lane]) largest[lane] = rotated;
      }
    });
    RINGDIST_UNROLL
    for (int flip = 1; flip < kLanes; flip *= 2) {
      const auto other = warp.shuffled(largest, flip);
      warp.each([&](int lane) {
        if (other[lane] > largest[lane]) largest[lane] = other[lane];
      });
    }
    return largest;
  }

  // Quantizes blocks without an ordinary scale. Their values are all zero, tiny, or not finite.
  template <Warp W>
  RINGDIST_DEVICE static uint16_t quantize_rare(W& warp, const Values<W, kParts>& x,
                                                uint32_t largest, QuantizedValues<W>& out) {
    const bool poisoned = largest >= kInfinity;
    const bool zero = largest == 0 || poisoned;
    const uint16_t scale = poisoned ? kPoisonScale
                           : zero   ? uint16_t{0}
                                    : tiny_scale(largest, Format::kTinyBits);
    each_element<kParts>(warp, kCount, [&](int part, int lane, int) {
      const int t = zero ? 0 : tiny_code(x.part[part][lane], scale);
      out.t.part[part][lane] = static_cast<float>(t);
      out.code[part][lane] = Format::field(t);
    });
    return scale;
  }

  // All codes of a byte belong to one lane.
  template <Warp W>
  RINGDIST_DEVICE static void pack_whole(W& warp, const QuantizedValues<W>& coded, uint8_t* out) {
    constexpr int kPacked = kParts / kFields;
    for (int row = 0; row < kPacked; ++row)
      warp.each([&](int lane) {
        uint32_t byte = 0;
        for (int field = 0; field < kFields; ++field)
          byte |= coded.code[row + field * kPacked][lane] << (field * Format::kBits);
        out[row * kWarp + lane] = static_cast<uint8_t>(byte);
      });
  }

  template <Warp W>
  RINGDIST_DEVICE static void pack_tail(W& warp, const QuantizedValues<W>& coded, int count,
                                        uint8_t* out) {
    auto* codes = static_cast<uint8_t*>(warp.scratch());
    each_element<kParts>(warp, kCount, [&](int part, int lane, int i) {
      codes[i] = static_cast<uint8_t>(coded.code[part][lane]);
    });
    warp.sync();
    const int bytes = packed_bytes(count);
    each_element<kParts>(warp, bytes, [&](int, int, int i) {
      uint32_t byte = 0;
      for (int field = 0; field < kFields; ++field)
        byte |= static_cast<uint32_t>(codes[i + field * bytes]) << (field * Format::kBits);
      out[i] = static_cast<uint8_t>(byte);
    });
    warp.sync();  // before the next block's codes
  }
};

}  // namespace ringdist::gpu
