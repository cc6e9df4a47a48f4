// Blocks of the codec `onebit` between the registers of a warp and bytes. Byte-identical to
// codec/onebit.cc and kernel/sign.cc, and specified in codec/onebit.spec.md. A Coder
// (cuda/kernel/codec_bodies.h).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/kernel/block_values.h"
#include "cuda/kernel/quads.h"
#include "cuda/kernel/seed.h"
#include "cuda/warp/device.h"
#include "cuda/warp/warp.h"
#include "kernel/half.h"
#include "kernel/sign.h"

namespace ringdist::gpu {

class SignCoder {
 public:
  static constexpr int kCount = kSignBlock;
  static constexpr int kParts = kCount / kWarp;
  static constexpr int kEncodes = 1;
  static constexpr int kDecodes = 2;
  static constexpr bool kTogether = false;
  static constexpr int kScratch = 0;
  static constexpr bool kSparse = false;
  static constexpr bool kEncodesWide = true;
  static constexpr bool kDecodesWide = true;
  static constexpr int kLanes = kCount / kWarp;
  static constexpr int kStaged = kWideCount / kCount * (2 + kCount / 8);

  static constexpr int64_t bytes(int count) { return kScaleBytes + sign_bytes(count); }
  static constexpr bool wide() { return true; }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed, uint64_t,
                              uint8_t* out) const {
    const uint16_t field = scale_field(warp, x, count);
    store_field(warp, field, out);
    store_signs(warp, x, field == kBFloatNaN ? 0 : count, count, out + kScaleBytes);
    each_element<kParts>(warp, count, [&](int part, int lane, int i) {
      x.part[part][lane] = decoded(field, i, float_bits(x.part[part][lane]) & kSignBit);
    });
  }

  // A block is ordinary if its field is its mean.
  template <Warp W>
  RINGDIST_DEVICE bool encode_wide(W& warp, const Quads<W, kLanes>& x, Seed, uint64_t,
                                   uint8_t* out) const {
    typename W::template Lanes<float> mean = sum_wide(warp, x);
    typename W::template Lanes<uint32_t> rare;
    warp.each([&](int lane) {
      mean[lane] /= kCount;
      rare[lane] = finite(mean[lane]) && mean[lane] >= std::numeric_limits<float>::min() ? 0 : 1;
    });
    if (warp.ballot(rare) != 0) return false;
    typename W::template Lanes<uint32_t> signs;  // signs of the lane's quads
    warp.each([&](int lane) {
      uint32_t bits = 0;
      for (int q = kQuads - 1; q >= 0; --q)
        for (int e = 3; e >= 0; --e) bits = bits << 1 | float_bits(x.quad[q][lane].at[e]) >> 31;
      signs[lane] = bits;
    });
    transpose(warp, signs);
    warp.each([&](int lane) {
      auto* const to = static_cast<uint16_t*>(warp.scratch()) + lane / kLanes * kPairs;
      const int member = lane % kLanes;
      if (member == 0) to[0] = finite_bfloat(mean[lane]);
      to[1 + 2 * member] = static_cast<uint16_t>(signs[lane]);
      to[2 + 2 * member] = static_cast<uint16_t>(signs[lane] >> 16);
    });
    write_staged<kStaged>(warp, out);
    return true;
  }

  template <Warp W>
  struct FetchedWide {
    typename W::template Lanes<uint32_t> field, signs;
  };

  template <Warp W>
  RINGDIST_DEVICE bool fetch_wide(W& warp, const uint8_t* in, FetchedWide<W>& out) const {
    typename W::template Lanes<uint32_t> rare;
    warp.each([&](int lane) {
      const auto* const from = reinterpret_cast<const uint16_t*>(in) + lane / kLanes * kPairs;
      const int member = lane % kLanes;
      out.field[lane] = from[0];
      out.signs[lane] = from[1 + 2 * member] | static_cast<uint32_t>(from[2 + 2 * member]) << 16;
      rare[lane] = out.field[lane] & kSingle;
    });
    if (warp.ballot(rare) != 0) return false;
    transpose(warp, out.signs);
    return true;
  }

  template <typename Fetched>
  RINGDIST_DEVICE static Quad decode_wide(const Fetched& in, int q, int lane) {
    Quad out;
    for (int e = 0; e < 4; ++e) {
      const uint32_t sign = in.signs[lane] << (31 - 4 * q - e) & kSignBit;
      out.at[e] = std::bit_cast<float>((in.field[lane] << 16) ^ sign);
    }
    return out;
  }

  template <Warp W>
  struct Fetched {
    uint16_t field;
    typename W::template Lanes<uint32_t> signs;  // one byte
  };

  template <Warp W>
  RINGDIST_DEVICE Fetched<W> fetch(W& warp, const uint8_t* in, int count) const {
    Fetched<W> out;
    out.field = load16(in);
    warp.each(
        [&](int lane) { out.signs[lane] = lane < sign_bytes(count) ? in[kScaleBytes + lane] : 0; });
    return out;
  }

  // Returns false if the field refers to an element beyond the block.
  template <Warp W>
  RINGDIST_DEVICE bool decode(W& warp, const Fetched<W>& in, int count, Seed, uint64_t, bool adding,
                              Values<W, kParts>& x) const {
    const uint16_t field = in.field;
    if ((field & kSingle) != 0 && single_index(field) >= count) return false;
    for (int part = 0; part < kParts; ++part) {
      const auto byte =
          warp.gathered(in.signs, [part](int lane) { return part * kWarp / 8 + lane / 8; });
      warp.each([&](int lane) {
        const int i = part * kWarp + lane;
        const uint32_t sign = byte[lane] >> (lane % 8) << 31;
        const bool sent = (field & kSingle) == 0 || i == single_index(field);
        // -0 is the neutral element of addition, so it stands for elements that were not sent.
        if (i < count) x.part[part][lane] = !sent && adding ? -0.0f : decoded(field, i, sign);
      });
    }
    return true;
  }

 private:
  static constexpr int kScaleBytes = sizeof(uint16_t);
  static constexpr int sign_bytes(int count) { return (count + 7) / 8; }  // each lane has one
  static constexpr uint16_t kSingle = 0x8000;  // mark of a field for a single element
  static constexpr int kPairs = (kScaleBytes + kCount / 8) / 2;  // pairs of bytes in a block

  // Return the element of such a field, and its magnitude 2^(e - 149). For e below 23 that is a
  // subnormal float, with one bit set.
  static constexpr int single_index(uint16_t field) { return field & 0xff; }
  static constexpr float single_value(uint16_t field) {
    const uint32_t e = field >> 8 & 0x7f;
    return std::bit_cast<float>(e < 23 ? 1u << e : (e - 22) << 23);
  }

  RINGDIST_DEVICE static float decoded(uint16_t field, int i, uint32_t sign) {
    const bool one = (field & kSingle) != 0;
    if (one && i != single_index(field)) return 0;
    const float scale = one ? single_value(field) : bfloat_to_float(field);
    return std::bit_cast<float>(float_bits(scale) ^ sign);
  }

  // Transposes the nibbles of a block's lanes, of which each has eight. Nibble q of lane m becomes
  // nibble m of lane q. This turns the bits of quads into consecutive bytes, and back.
  template <Warp W>
  RINGDIST_DEVICE static void transpose(W& warp, typename W::template Lanes<uint32_t>& nibbles) {
    static_assert(kLanes == kQuads);
    RINGDIST_UNROLL
    for (int flip = kLanes / 2; flip > 0; flip /= 2) {
      const uint32_t low = flip == 4 ? 0x0000ffff : flip == 2 ? 0x00ff00ff : 0x0f0f0f0f;
      const auto other = warp.shuffled(nibbles, flip);
      warp.each([&](int lane) {
        const bool upper = (lane & flip) != 0;
        nibbles[lane] = upper ? (nibbles[lane] & ~low) | (other[lane] >> 4 * flip & low)
                              : (nibbles[lane] & low) | (other[lane] << 4 * flip & ~low);
      });
    }
  }

  // Returns the sum of a block's magnitudes, as sum_of_magnitudes(). Each lane has four running
  // sums.
  template <Warp W>
  RINGDIST_DEVICE static auto sum_wide(W& warp, const Quads<W, kLanes>& x) {
    typename W::template Lanes<float> sums[4];
    for (auto& sum : sums) warp.each([&](int lane) { sum[lane] = 0; });
    each_quad<kLanes>(warp, [&](int q, int lane, int) {
      for (int e = 0; e < 4; ++e)
        sums[e][lane] += std::bit_cast<float>(magnitude_bits(x.quad[q][lane].at[e]));
    });
    return total_of_quads<kLanes>(warp, sums);
  }

  // Stores the signs of the first `known` elements. The bits of the others are 0.
  template <Warp W>
  RINGDIST_DEVICE static void store_signs(W& warp, const Values<W, kParts>& x, int known, int count,
                                          uint8_t* out) {
    typename W::template Lanes<uint32_t> words;  // lane p has the word of part p
    warp.each([&](int lane) { words[lane] = 0; });
    for (int part = 0; part < kParts; ++part) {
      typename W::template Lanes<uint32_t> negative;
      warp.each([&](int lane) {
        const bool is_known = part * kWarp + lane < known;
        negative[lane] = is_known ? float_bits(x.part[part][lane]) >> 31 : 0;
      });
      const uint32_t word = warp.ballot(negative);
      warp.each([&](int lane) {
        if (lane == part) words[lane] = word;
      });
    }
    const auto of_byte = warp.gathered(words, [](int lane) { return lane / 4; });
    warp.each([&](int lane) {
      if (lane < sign_bytes(count))
        out[lane] = static_cast<uint8_t>(of_byte[lane] >> (8 * (lane % 4)));
    });
  }

  template <Warp W>
  RINGDIST_DEVICE static uint16_t scale_field(W& warp, const Values<W, kParts>& x, int count) {
    const float total = sum_of_magnitudes(warp, x);
    if (total == 0) return 0;
    const float mean =
        finite(total) ? total / static_cast<float>(count) : large_mean(warp, x, count);
    if (!finite(mean)) return kBFloatNaN;
    if (mean < std::numeric_limits<float>::min()) return single(warp, x);
    return finite_bfloat(mean);
  }

  // Adds one running sum per lane, and then pairwise.
  template <Warp W>
  RINGDIST_DEVICE static float sum_of_magnitudes(W& warp, const Values<W, kParts>& x) {
    typename W::template Lanes<float> sum;
    warp.each([&](int lane) {
      sum[lane] = 0;
      for (const auto& part : x.part) sum[lane] += std::bit_cast<float>(magnitude_bits(part[lane]));
    });
    for (int flip = kWarp / 2; flip > 0; flip /= 2) {
      const auto other = warp.shuffled(sum, flip);
      warp.each([&](int lane) { sum[lane] += other[lane]; });
    }
    return warp.of(sum, 0);
  }

  // Returns the mean if only the sum overflows. Returns NaN if a value is not finite. Adds in fp64
  // and one by one, as the specification demands.
  template <Warp W>
  RINGDIST_DEVICE static float large_mean(W& warp, const Values<W, kParts>& x, int count) {
    double total = 0;
    for (int part = 0; part < kParts; ++part)
      for (int lane = 0; lane < kWarp; ++lane) {
        const float one = warp.of(x.part[part], lane);  // in all lanes
        if (part * kWarp + lane < count)
          total += static_cast<double>(std::bit_cast<float>(magnitude_bits(one)));
      }
    if (!(total <= static_cast<double>(count) * std::numeric_limits<float>::max()))
      return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(total / static_cast<double>(count));
  }

  // Returns the field of a single element. It is the first of the largest elements, rounded down to
  // a power of two.
  template <Warp W>
  RINGDIST_DEVICE static uint16_t single(W& warp, const Values<W, kParts>& x) {
    const uint32_t most = largest_magnitude(warp, x);
    const int exponent =
        most >= 1u << 23 ? static_cast<int>(most >> 23) + 22 : 31 - std::countl_zero(most);
    int index = 0;
    for (int part = kParts - 1; part >= 0; --part) {
      typename W::template Lanes<uint32_t> here;
      warp.each([&](int lane) { here[lane] = magnitude_bits(x.part[part][lane]) == most ? 1 : 0; });
      const uint32_t lanes = warp.ballot(here);
      if (lanes != 0) index = part * kWarp + lowest_bit(lanes);
    }
    return static_cast<uint16_t>(kSingle | exponent << 8 | index);
  }
};

}  // namespace ringdist::gpu
