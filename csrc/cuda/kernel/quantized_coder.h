// A block of the codecs fp8, int8, int4 and int2 between a warp's registers and its bytes: the twin
// of kernel/quantize_loops.h, byte for byte. A Coder (cuda/kernel/coding.h).
#pragma once

#include <cstdint>
#include <limits>

#include "cuda/grid/device.h"
#include "cuda/grid/warp.h"
#include "cuda/kernel/quantized_format.h"
#include "cuda/kernel/seed.h"
#include "cuda/kernel/values.h"
#include "kernel/block_format.h"
#include "kernel/block_scale.h"

namespace ringdist::gpu {

template <typename Format>
struct QuantizedCoder {
  static constexpr int kParts = kQuantizedParts;
  static constexpr int kCount = kQuantizeBlock;
  static constexpr int kBatch = 4;
  static constexpr int kScratch = kCount;
  static constexpr bool kSparse = false;

  bool stochastic = false;

  static constexpr int64_t bytes(int count) { return kScaleBytes + packed_bytes(count); }

  template <Warp W>
  RINGDIST_DEVICE void encode(W& warp, Values<W, kParts>& x, int count, Seed seed, uint64_t at,
                              uint8_t* out) const {
    const Largest largest = measure(warp, x);
    const bool ordinary = largest.bits >= float_bits(kSmallestScaled) && largest.bits < kInfinity;
    QuantizedValues<W> coded;
    const uint16_t scale =
        ordinary ? Format::quantize(warp, x, largest, {stochastic, seed.key()}, at, coded)
                 : quantize_rare(warp, x, largest.bits, coded);
    store_field(warp, scale, out);
    if (count == kCount)
      pack_whole(warp, coded, out + kScaleBytes);
    else
      pack_tail(warp, coded, count, out + kScaleBytes);
    const float value =
        scale == kPoisonScale ? std::numeric_limits<float>::quiet_NaN() : scale_value(scale);
    each_element<kParts>(warp, count, [&](int part, int lane, int) {
      x.part[part][lane] = coded.t.part[part][lane] * value;
    });
  }

  template <Warp W>
  struct Fetched {
    uint16_t scale;
    typename W::template Lanes<uint8_t> packed[kParts];  // where each element's code is
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
  static constexpr int kFields = 8 / Format::kBits;  // of a byte

  // Byte i holds codes i, i + this, i + 2 times this, ..., the first in its low bits.
  static constexpr int packed_bytes(int count) { return (count * Format::kBits + 7) / 8; }

  template <Warp W>
  RINGDIST_DEVICE static Largest measure(W& warp, const Values<W, kParts>& x) {
    typename W::template Lanes<uint32_t> largest;  // with the sign as its lowest bit
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

  // Blocks that have no ordinary scale: all zero, tiny, or not finite.
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

  // A byte's codes are all of one lane.
  template <Warp W>
  RINGDIST_DEVICE static void pack_whole(W& warp, const QuantizedValues<W>& coded, uint8_t* out) {
    constexpr int kRows = kParts / kFields;
    for (int row = 0; row < kRows; ++row)
      warp.each([&](int lane) {
        uint32_t byte = 0;
        for (int field = 0; field < kFields; ++field)
          byte |= coded.code[row + field * kRows][lane] << (field * Format::kBits);
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
    warp.sync();  // before another block's codes
  }
};

}  // namespace ringdist::gpu
