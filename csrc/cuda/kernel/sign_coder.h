// A block of the codec `onebit` between a warp's registers and its bytes: the twin of
// codec/onebit.cc and kernel/sign.cc, byte for byte. codec/onebit.spec.md has the bytes. A Coder
// (cuda/kernel/coding.h).
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/seed.h"
#include "cuda/kernel/values.h"
#include "kernel/finite_bfloat.h"
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

  static constexpr int64_t bytes(int count) { return kScaleBytes + sign_bytes(count); }

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

  template <Warp W>
  struct Fetched {
    uint16_t field;
    typename W::template Lanes<uint32_t> signs;  // a byte
  };

  template <Warp W>
  RINGDIST_DEVICE Fetched<W> fetch(W& warp, const uint8_t* in, int count) const {
    Fetched<W> out;
    out.field = load16(in);
    warp.each(
        [&](int lane) { out.signs[lane] = lane < sign_bytes(count) ? in[kScaleBytes + lane] : 0; });
    return out;
  }

  // False if the field names an element that is not there.
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
        // What is not sent is not added: -0 leaves what it is added to.
        if (i < count) x.part[part][lane] = !sent && adding ? -0.0f : decoded(field, i, sign);
      });
    }
    return true;
  }

 private:
  static constexpr int kScaleBytes = sizeof(uint16_t);
  static constexpr int sign_bytes(int count) { return (count + 7) / 8; }  // a lane's each
  static constexpr uint16_t kSingle = 0x8000;                             // of one element only

  // Of such a field: the element, and its magnitude 2^(e - 149).
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

  // Of the first `known` elements; no bit of the others is set.
  template <Warp W>
  RINGDIST_DEVICE static void store_signs(W& warp, const Values<W, kParts>& x, int known, int count,
                                          uint8_t* out) {
    typename W::template Lanes<uint32_t> words;  // lane p's is part p's
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

  // One running sum of each lane, then pairwise.
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

  // For sums of magnitudes that are not finite: NaN, or the mean where only their sum overflows.
  template <Warp W>
  RINGDIST_DEVICE static float large_mean(W& warp, const Values<W, kParts>& x, int count) {
    double total = 0;
    for (int part = 0; part < kParts; ++part)
      for (int lane = 0; lane < kWarp; ++lane) {
        const float one = warp.of(x.part[part], lane);  // by all lanes
        if (part * kWarp + lane < count)
          total += static_cast<double>(std::bit_cast<float>(magnitude_bits(one)));
      }
    if (!(total <= static_cast<double>(count) * std::numeric_limits<float>::max()))
      return std::numeric_limits<float>::quiet_NaN();
    return static_cast<float>(total / static_cast<double>(count));
  }

  // The first of the largest elements, rounded down to a power of two.
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
